#include "ccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "common/boundary.h"
#include "device.h"
#include "nccl.h"
#include "stream.h"

struct tb_comm {
  const int32_t device;
  std::atomic<xcuda::ncclComm_t> handle{nullptr}; // null: aborted, which frees it
  std::mutex mutex;                               // guards streams
  std::vector<xcuda::CUstream> streams;           // that calls were enqueued on
};

namespace xcuda {
namespace {

constexpr int kNone = -1;

int nccl_dtype_of(tb_dtype dtype) {
  if (dtype.lanes != 1) return kNone;
  switch (dtype.code << 8 | dtype.bits) {
    case TB_DTYPE_INT << 8 | 8:
      return kncclInt8;
    case TB_DTYPE_UINT << 8 | 8:
      return kncclUint8;
    case TB_DTYPE_INT << 8 | 32:
      return kncclInt32;
    case TB_DTYPE_UINT << 8 | 32:
      return kncclUint32;
    case TB_DTYPE_INT << 8 | 64:
      return kncclInt64;
    case TB_DTYPE_UINT << 8 | 64:
      return kncclUint64;
    case TB_DTYPE_FLOAT << 8 | 16:
      return kncclFloat16;
    case TB_DTYPE_FLOAT << 8 | 32:
      return kncclFloat32;
    case TB_DTYPE_FLOAT << 8 | 64:
      return kncclFloat64;
    case TB_DTYPE_BFLOAT << 8 | 16:
      return kncclBfloat16;
    default:
      return kNone;
  }
}

int nccl_reduction_of(int32_t reduction) {
  switch (reduction) {
    case TB_REDUCE_SUM:
      return kncclSum;
    case TB_REDUCE_PRODUCT:
      return kncclProd;
    case TB_REDUCE_MIN:
      return kncclMin;
    case TB_REDUCE_MAX:
      return kncclMax;
    case TB_REDUCE_AVERAGE:
      return kncclAvg;
    default:
      return kNone;
  }
}

// Calls `function` with NCCL's communicator, dtype and stream, unless there is nothing to do.
template <typename Function>
result enqueue(const char* what, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream, Function function) {
  const int known = nccl_dtype_of(dtype);
  if (known == kNone) return {TB_STATUS_UNSUPPORTED, ""};
  const ncclComm_t handle = comm->handle;
  if (!handle) return failure(TB_STATUS_INVALID_ARGUMENT, "%s: the communicator was aborted", what);
  if (count == 0) return {}; // on all ranks
  const CUstream on = handle_of(stream);
  {
    const std::lock_guard<std::mutex> lock(comm->mutex);
    if (std::find(comm->streams.begin(), comm->streams.end(), on) == comm->streams.end()) comm->streams.push_back(on);
  }
  const context_scope scope(device_at(comm->device));
  return scope.failure().ok() ? check_nccl(function(known, handle, on), what) : scope.failure();
}

template <typename Function>
result enqueue(const char* what, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm, tb_stream* stream,
               Function function) {
  const int known = nccl_reduction_of(reduction);
  if (known == kNone) return {TB_STATUS_UNSUPPORTED, ""};
  return enqueue(what, count, dtype, comm, stream,
                 [&](int of, ncclComm_t handle, CUstream on) { return function(of, known, handle, on); });
}

// ---- slots ----

result unique_id_create(void* out_unique_id) {
  ncclUniqueId id{};
  result r = check_nccl(nccl.GetUniqueId(&id), "unique_id_create");
  if (r.ok()) std::memcpy(out_unique_id, &id, sizeof id);
  return r;
}

result comm_create(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm) {
  ncclUniqueId id{};
  std::memcpy(&id, unique_id, sizeof id);
  const context_scope scope(device_at(device));
  if (!scope.failure().ok()) return scope.failure();
  ncclComm_t handle = nullptr;
  result r = check_nccl(nccl.CommInitRank(&handle, num_ranks, id, rank), "comm_create");
  if (r.ok()) *out_comm = new tb_comm{device, handle, {}, {}};
  return r;
}

result comm_destroy(tb_comm* comm) {
  const ncclComm_t handle = comm->handle;
  const context_scope scope(device_at(comm->device));
  result r = handle ? check_nccl(nccl.CommDestroy(handle), "comm_destroy") : result();
  delete comm;
  return r;
}

// NCCL lets the streams go on as if the calls had ended.
result comm_abort(tb_comm* comm) {
  const ncclComm_t handle = comm->handle.exchange(nullptr);
  if (!handle) return {};
  device& d = device_at(comm->device);
  const context_scope scope(d);
  if (!scope.failure().ok()) return scope.failure();
  {
    const std::lock_guard<std::mutex> lock(comm->mutex);
    for (CUstream stream : comm->streams) note_abort(d, stream);
  }
  return check_nccl(nccl.CommAbort(handle), "comm_abort");
}

result comm_query_error(tb_comm* comm) {
  const ncclComm_t handle = comm->handle;
  if (!handle) return failure(TB_STATUS_INTERNAL, "the communicator was aborted");
  ncclResult_t pending = kncclSuccess;
  result r = check_nccl(nccl.CommGetAsyncError(handle, &pending), "comm_query_error");
  return r.ok() ? check_nccl(pending, "a call on the communicator") : r;
}

result group_begin() {
  return check_nccl(nccl.GroupStart(), "group_begin");
}

result group_end() {
  return check_nccl(nccl.GroupEnd(), "group_end");
}

result send(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  return enqueue("send", count, dtype, comm, stream, [&](int of, ncclComm_t handle, CUstream on) {
    return nccl.Send(buffer, count, of, peer, handle, on);
  });
}

result recv(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  return enqueue("recv", count, dtype, comm, stream, [&](int of, ncclComm_t handle, CUstream on) {
    return nccl.Recv(buffer, count, of, peer, handle, on);
  });
}

result all_reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                  tb_stream* stream) {
  return enqueue("all_reduce", count, dtype, reduction, comm, stream,
                 [&](int of, int by, ncclComm_t handle, CUstream on) {
                   return nccl.AllReduce(in, out, count, of, by, handle, on);
                 });
}

result reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root, tb_comm* comm,
              tb_stream* stream) {
  return enqueue("reduce", count, dtype, reduction, comm, stream, [&](int of, int by, ncclComm_t handle, CUstream on) {
    return nccl.Reduce(in, out, count, of, by, root, handle, on);
  });
}

result broadcast(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm,
                 tb_stream* stream) {
  return enqueue("broadcast", count, dtype, comm, stream, [&](int of, ncclComm_t handle, CUstream on) {
    return nccl.Broadcast(in, out, count, of, root, handle, on);
  });
}

result all_gather(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream) {
  return enqueue("all_gather", count, dtype, comm, stream, [&](int of, ncclComm_t handle, CUstream on) {
    return nccl.AllGather(in, out, count, of, handle, on);
  });
}

result reduce_scatter(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                      tb_stream* stream) {
  return enqueue("reduce_scatter", count, dtype, reduction, comm, stream,
                 [&](int of, int by, ncclComm_t handle, CUstream on) {
                   return nccl.ReduceScatter(in, out, count, of, by, handle, on);
                 });
}

tb_ccl_table make_table() {
  tb_ccl_table table =
      PLUGIN_TABLE(tb_ccl_table, unique_id_create, comm_create, comm_destroy, send, recv, group_begin, group_end,
                   comm_abort, comm_query_error, all_reduce, reduce, broadcast, all_gather, reduce_scatter);
  table.unique_id_bytes = sizeof(ncclUniqueId);
  return table;
}

} // namespace

const tb_ccl_table* collectives() {
  static const tb_ccl_table table = make_table();
  static const bool offered = load_nccl();
  return offered ? &table : nullptr;
}

} // namespace xcuda
