#include "table.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives.h"
#include "group.h"

namespace xcpu::ccl {
namespace {

constexpr int32_t kMostRanks = 64;

result element_bytes(tb_dtype dtype, uint64_t* out_bytes) {
  const uint64_t bits = static_cast<uint64_t>(dtype.bits) * dtype.lanes;
  if (bits == 0 || bits % 8 != 0)
    return failure(TB_STATUS_UNSUPPORTED, "elements of %s do not have whole bytes", dtype_name(dtype).c_str());
  *out_bytes = bits / 8;
  return {};
}

result check_rank(const char* call, const char* what, int32_t rank, const communicator& comm) {
  if (rank >= 0 && rank < comm.num_ranks()) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s: %s %d of a communicator of %d ranks", call, what, rank,
                 comm.num_ranks());
}

result check_reduction(const char* call, tb_dtype dtype, int32_t which, reduction* out_reduction) {
  *out_reduction = find_reduction(dtype, which);
  if (out_reduction->function) return {};
  return failure(TB_STATUS_UNSUPPORTED, "%s: no reduction %d (TB_REDUCE_*) of elements of %s", call, which,
                 dtype_name(dtype).c_str());
}

// How many times `count` elements a collective reads and writes on this rank.
struct extent {
  uint64_t in, out;
};

// `add` is a function of (plan&, const signature&, const buffers&).
template <typename Add>
result submit_collective(slot which, const signature& what, const void* in, void* out, extent size, tb_comm* comm,
                         tb_stream* stream, Add add) {
  buffers b{in, out, 0};
  result r = element_bytes(what.dtype, &b.element_bytes);
  if (!r.ok()) return r;
  return submit({which, comm->shared, stream, [=, shared = comm->shared](batch& target) {
                   const uint64_t bytes = what.count * b.element_bytes;
                   target.needs({shared->device(), in, bytes * size.in, TB_MAP_READ});
                   target.needs({shared->device(), out, bytes * size.out, TB_MAP_READ | TB_MAP_WRITE});
                   add(target.plan_of(shared), what, b);
                 }});
}

uint64_t num_ranks(const tb_comm* comm) {
  return static_cast<uint64_t>(comm->shared->num_ranks());
}

uint64_t only_at(int32_t root, const tb_comm* comm) {
  return comm->shared->rank() == root ? 1 : 0;
}

using counts = std::vector<uint64_t>;

// How many elements from the start of the buffer on.
uint64_t reach(const counts& sizes, const counts& offsets) {
  uint64_t end = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 0) end = std::max(end, offsets[i] + sizes[i]);
  return end;
}

} // namespace

result comm_create(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm) {
  if (num_ranks < 1 || num_ranks > kMostRanks)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: %d ranks; 1 to %d are possible", num_ranks, kMostRanks);
  if (rank < 0 || rank >= num_ranks)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: rank %d of %d", rank, num_ranks);
  std::string name;
  result r = segment_name(unique_id, &name);
  auto comm = std::make_unique<tb_comm>();
  if (r.ok()) r = communicator::join(device, num_ranks, rank, name, &comm->shared);
  if (r.ok()) r = submit_join(comm->shared);
  if (r.ok()) *out_comm = comm.release();
  return r;
}

result comm_destroy(tb_comm* comm) {
  delete comm;
  return {};
}

result comm_abort(tb_comm* comm) {
  comm->shared->abort();
  return {};
}

result comm_query_error(tb_comm* comm) {
  return comm->shared->query_error();
}

result send(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  if (result r = check_rank("send", "to rank", peer, *comm->shared); !r.ok()) return r;
  const signature what{operation::point_to_point, dtype, kNoReduction, kNoRoot, count};
  return submit_collective(slot::send, what, buffer, nullptr, {1, 0}, comm, stream,
                           [peer](plan& p, const signature& call, const buffers& b) {
                             p.send(peer, call, b.in, call.count * b.element_bytes);
                           });
}

result recv(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  if (result r = check_rank("recv", "from rank", peer, *comm->shared); !r.ok()) return r;
  const signature what{operation::point_to_point, dtype, kNoReduction, kNoRoot, count};
  return submit_collective(slot::recv, what, nullptr, buffer, {0, 1}, comm, stream,
                           [peer](plan& p, const signature& call, const buffers& b) {
                             p.receive(peer, call, b.out, call.count * b.element_bytes);
                           });
}

result all_reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                  tb_stream* stream) {
  ccl::reduction with;
  if (result r = check_reduction("all_reduce", dtype, reduction, &with); !r.ok()) return r;
  const signature what{operation::all_reduce, dtype, reduction, kNoRoot, count};
  return submit_collective(
      slot::all_reduce, what, in, out, {1, 1}, comm, stream,
      [with](plan& p, const signature& call, const buffers& b) { plan_all_reduce(p, call, b, with); });
}

result reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root, tb_comm* comm,
              tb_stream* stream) {
  ccl::reduction with;
  result r = check_rank("reduce", "root", root, *comm->shared);
  if (r.ok()) r = check_reduction("reduce", dtype, reduction, &with);
  if (!r.ok()) return r;
  const signature what{operation::reduce, dtype, reduction, root, count};
  return submit_collective(slot::reduce, what, in, out, {1, only_at(root, comm)}, comm, stream,
                           [with](plan& p, const signature& call, const buffers& b) { plan_reduce(p, call, b, with); });
}

result broadcast(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm,
                 tb_stream* stream) {
  if (result r = check_rank("broadcast", "root", root, *comm->shared); !r.ok()) return r;
  const signature what{operation::broadcast, dtype, kNoReduction, root, count};
  return submit_collective(slot::broadcast, what, in, out, {only_at(root, comm), 1}, comm, stream,
                           [](plan& p, const signature& call, const buffers& b) { plan_broadcast(p, call, b); });
}

result all_gather(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream) {
  const signature what{operation::all_gather, dtype, kNoReduction, kNoRoot, count};
  return submit_collective(slot::all_gather, what, in, out, {1, num_ranks(comm)}, comm, stream,
                           [](plan& p, const signature& call, const buffers& b) { plan_all_gather(p, call, b); });
}

result reduce_scatter(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                      tb_stream* stream) {
  ccl::reduction with;
  if (result r = check_reduction("reduce_scatter", dtype, reduction, &with); !r.ok()) return r;
  const signature what{operation::reduce_scatter, dtype, reduction, kNoRoot, count};
  return submit_collective(
      slot::reduce_scatter, what, in, out, {num_ranks(comm), 1}, comm, stream,
      [with](plan& p, const signature& call, const buffers& b) { plan_reduce_scatter(p, call, b, with); });
}

result all_to_all(const void* in, const uint64_t* send_counts, const uint64_t* send_offsets, void* out,
                  const uint64_t* recv_counts, const uint64_t* recv_offsets, tb_dtype dtype, tb_comm* comm,
                  tb_stream* stream) {
  const auto copied = [&](const uint64_t* numbers) { return counts(numbers, numbers + num_ranks(comm)); };
  const counts to = copied(send_counts), to_at = copied(send_offsets);
  const counts from = copied(recv_counts), from_at = copied(recv_offsets);
  const signature what{operation::all_to_all, dtype, kNoReduction, kNoRoot, 1}; // each message has its own count
  return submit_collective(slot::all_to_all, what, in, out, {reach(to, to_at), reach(from, from_at)}, comm, stream,
                           [=](plan& p, const signature& call, const buffers& b) {
                             plan_all_to_all(p, call, b, to.data(), to_at.data(), from.data(), from_at.data());
                           });
}

} // namespace xcpu::ccl
