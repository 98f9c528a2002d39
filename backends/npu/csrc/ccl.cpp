#include "ccl.h"

#include <memory>
#include <vector>

#include "common/boundary.h"
#include "device.h"
#include "hccl.h"
#include "stream.h"

struct tb_comm {
  int32_t device, rank;
  npu::hccl_comm handle;
};

namespace npu {
namespace {

constexpr int kNoDtype = -1;

// HcclDataType
int hccl_dtype_of(tb_dtype dtype) {
  if (dtype.lanes != 1) return kNoDtype;
  switch (dtype.code << 8 | dtype.bits) {
    case TB_DTYPE_INT << 8 | 8:
      return 0;
    case TB_DTYPE_INT << 8 | 16:
      return 1;
    case TB_DTYPE_INT << 8 | 32:
      return 2;
    case TB_DTYPE_FLOAT << 8 | 16:
      return 3;
    case TB_DTYPE_FLOAT << 8 | 32:
      return 4;
    case TB_DTYPE_INT << 8 | 64:
      return 5;
    case TB_DTYPE_UINT << 8 | 8:
      return 7;
    case TB_DTYPE_FLOAT << 8 | 64:
      return 10;
    case TB_DTYPE_BFLOAT << 8 | 16:
      return 11;
    default:
      return kNoDtype;
  }
}

// HcclReduceOp; it has no average.
int hccl_reduction_of(int32_t reduction) {
  switch (reduction) {
    case TB_REDUCE_SUM:
      return 0;
    case TB_REDUCE_PRODUCT:
      return 1;
    case TB_REDUCE_MAX:
      return 2;
    case TB_REDUCE_MIN:
      return 3;
    default:
      return -1;
  }
}

// What HCCL wants of a call.
struct translated {
  acl_stream stream = nullptr;
  int dtype = kNoDtype;
  int reduction = -1;
};

result translate(tb_comm* comm, tb_stream* stream, tb_dtype dtype, translated* out) {
  out->dtype = hccl_dtype_of(dtype);
  if (out->dtype == kNoDtype) return {TB_STATUS_UNSUPPORTED, ""};
  return handle_of(comm->device, stream, &out->stream);
}

result translate(tb_comm* comm, tb_stream* stream, tb_dtype dtype, int32_t reduction, translated* out) {
  out->reduction = hccl_reduction_of(reduction);
  return out->reduction < 0 ? result{TB_STATUS_UNSUPPORTED, ""} : translate(comm, stream, dtype, out);
}

// ---- groups: HCCL has none; what is sent and received in one goes as one batch ----

struct waiting_message {
  tb_comm* comm;
  acl_stream stream;
  hccl_message message;
};

struct group {
  int depth = 0;
  std::vector<waiting_message> messages;
};

thread_local group of_thread;

result group_begin() {
  ++of_thread.depth;
  return {};
}

result group_end() {
  if (of_thread.depth == 0) return failure(TB_STATUS_INVALID_ARGUMENT, "group_end without group_begin");
  if (--of_thread.depth > 0) return {};
  std::vector<waiting_message> left;
  left.swap(of_thread.messages);
  while (!left.empty()) { // a batch for each communicator and stream
    const waiting_message first = left.front();
    std::vector<hccl_message> batch;
    std::vector<waiting_message> others;
    for (const waiting_message& w : left) {
      if (w.comm == first.comm && w.stream == first.stream)
        batch.push_back(w.message);
      else
        others.push_back(w);
    }
    left.swap(others);
    const bound binding(first.comm->device);
    if (!binding.outcome().ok()) return binding.outcome();
    const int error =
        hccl.HcclBatchSendRecv(batch.data(), static_cast<uint32_t>(batch.size()), first.comm->handle, first.stream);
    if (result r = check_hccl(error, "HcclBatchSendRecv"); !r.ok()) return r;
  }
  return {};
}

result message(int direction, void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
               tb_stream* stream) {
  if (count == 0) return {}; // on both sides
  translated t;
  if (result r = translate(comm, stream, dtype, &t); !r.ok()) return r;
  const auto other = static_cast<uint32_t>(peer);
  if (of_thread.depth > 0) {
    of_thread.messages.push_back({comm, t.stream, {direction, buffer, count, t.dtype, other}});
    return {};
  }
  if (direction == kHcclSend)
    return check_hccl(hccl.HcclSend(buffer, count, t.dtype, other, comm->handle, t.stream), "HcclSend");
  return check_hccl(hccl.HcclRecv(buffer, count, t.dtype, other, comm->handle, t.stream), "HcclRecv");
}

// ---- slots ----

result unique_id_create(void* out_unique_id) {
  int32_t device = 0; // HCCL wants the thread to have one, any
  if (acl.aclrtGetDevice(&device) != kAclSuccess)
    if (result r = thread_bind(device); !r.ok()) return r;
  return check_hccl(hccl.HcclGetRootInfo(static_cast<hccl_root_info*>(out_unique_id)), "HcclGetRootInfo");
}

result comm_create(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm) {
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: rank %d of %d", rank, num_ranks);
  auto comm = std::make_unique<tb_comm>(tb_comm{device, rank, nullptr});
  const int error =
      hccl.HcclCommInitRootInfo(static_cast<uint32_t>(num_ranks), static_cast<const hccl_root_info*>(unique_id),
                                static_cast<uint32_t>(rank), &comm->handle);
  result r = check_hccl(error, "HcclCommInitRootInfo");
  if (r.ok()) *out_comm = comm.release();
  return r;
}

result comm_destroy(tb_comm* comm) {
  const std::unique_ptr<tb_comm> owned(comm);
  return check_hccl(hccl.HcclCommDestroy(comm->handle), "HcclCommDestroy");
}

result comm_query_error(tb_comm* comm) {
  int pending = 0;
  result r = check_hccl(hccl.HcclGetCommAsyncError(comm->handle, &pending), "HcclGetCommAsyncError");
  return r.ok() ? check_hccl(pending, "a call on the communicator") : r;
}

result send(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  return message(kHcclSend, const_cast<void*>(buffer), count, dtype, peer, comm, stream);
}

result recv(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  return message(kHcclReceive, buffer, count, dtype, peer, comm, stream);
}

result all_reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                  tb_stream* stream) {
  translated t;
  if (result r = translate(comm, stream, dtype, reduction, &t); !r.ok() || count == 0) return r;
  const int error = hccl.HcclAllReduce(const_cast<void*>(in), out, count, t.dtype, t.reduction, comm->handle, t.stream);
  return check_hccl(error, "HcclAllReduce");
}

result reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root, tb_comm* comm,
              tb_stream* stream) {
  translated t;
  if (result r = translate(comm, stream, dtype, reduction, &t); !r.ok() || count == 0) return r;
  const int error = hccl.HcclReduce(const_cast<void*>(in), out, count, t.dtype, t.reduction,
                                    static_cast<uint32_t>(root), comm->handle, t.stream);
  return check_hccl(error, "HcclReduce");
}

// HCCL has one buffer: the root's input is copied into it, as into the others' output.
result broadcast(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm,
                 tb_stream* stream) {
  translated t;
  if (result r = translate(comm, stream, dtype, &t); !r.ok() || count == 0) return r;
  if (in != out && comm->rank == root) {
    result r =
        memory_copy(comm->device, out, comm->device, in, count * dtype.bits / 8, TB_COPY_DEVICE_TO_DEVICE, stream);
    if (!r.ok()) return r;
  }
  const int error = hccl.HcclBroadcast(out, count, t.dtype, static_cast<uint32_t>(root), comm->handle, t.stream);
  return check_hccl(error, "HcclBroadcast");
}

result all_gather(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream) {
  translated t;
  if (result r = translate(comm, stream, dtype, &t); !r.ok() || count == 0) return r;
  const int error = hccl.HcclAllGather(const_cast<void*>(in), out, count, t.dtype, comm->handle, t.stream);
  return check_hccl(error, "HcclAllGather");
}

result reduce_scatter(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                      tb_stream* stream) {
  translated t;
  if (result r = translate(comm, stream, dtype, reduction, &t); !r.ok() || count == 0) return r;
  const int error =
      hccl.HcclReduceScatter(const_cast<void*>(in), out, count, t.dtype, t.reduction, comm->handle, t.stream);
  return check_hccl(error, "HcclReduceScatter");
}

result all_to_all(const void* in, const uint64_t* send_counts, const uint64_t* send_offsets, void* out,
                  const uint64_t* recv_counts, const uint64_t* recv_offsets, tb_dtype dtype, tb_comm* comm,
                  tb_stream* stream) {
  translated t;
  if (result r = translate(comm, stream, dtype, &t); !r.ok()) return r;
  const int error = hccl.HcclAlltoAllV(in, send_counts, send_offsets, t.dtype, out, recv_counts, recv_offsets, t.dtype,
                                       comm->handle, t.stream);
  return check_hccl(error, "HcclAlltoAllV");
}

tb_ccl_table make_table() {
  tb_ccl_table table =
      PLUGIN_TABLE(tb_ccl_table, unique_id_create, comm_create, comm_destroy, send, recv, group_begin, group_end,
                   comm_query_error, all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all);
  table.unique_id_bytes = kRootInfoBytes;
  return table;
}

} // namespace

const tb_ccl_table* collectives() {
  static const tb_ccl_table table = make_table();
  static const bool offered = load_hccl();
  return offered ? &table : nullptr;
}

} // namespace npu
