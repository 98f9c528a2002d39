#include "table.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "../scoped_access.h"
#include "reduction.h"
#include "submit.h"

namespace xcpu::ccl {
namespace {

constexpr int32_t kMostRanks = 64;
// Up to here every rank sends all it has to every other and reduces alone: one message instead of two, one after the other.
constexpr uint64_t kSmallBytes = 16 << 10;

result check_rank(slot which, const char* what, int32_t rank, const tb_comm* comm) {
  if (rank >= 0 && rank < comm->shared->num_ranks()) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s: %s %d of a communicator of %d ranks", slot_name(which), what, rank,
                 comm->shared->num_ranks());
}

const unsigned char* at(const void* data, uint64_t offset) {
  return static_cast<const unsigned char*>(data) + offset;
}

unsigned char* at(void* data, uint64_t offset) {
  return static_cast<unsigned char*>(data) + offset;
}

// `add` is a function of the batch, the call's first step and the bytes of its elements.
template <typename Add>
result submit_call(slot which, const signature& what, tb_comm* comm, tb_stream* stream, Add add) {
  const uint64_t bits = static_cast<uint64_t>(what.dtype.bits) * what.dtype.lanes;
  if (bits == 0 || bits % 8 != 0)
    return failure(TB_STATUS_UNSUPPORTED, "elements of %s do not have whole bytes", dtype_name(what.dtype).c_str());
  return submit({which, comm->shared, stream,
                 [=, shared = comm->shared](batch& to) { add(to, to.add(shared, what), what.count * bits / 8); }});
}

// `add` takes the reduction as well.
template <typename Add>
result submit_reduction(slot which, const signature& what, tb_comm* comm, tb_stream* stream, Add add) {
  const reduction with = find_reduction(what.dtype, what.reduction);
  if (!with.function)
    return failure(TB_STATUS_UNSUPPORTED, "%s: no reduction %d (TB_REDUCE_*) of elements of %s", slot_name(which),
                   what.reduction, dtype_name(what.dtype).c_str());
  return submit_call(which, what, comm, stream,
                     [=](batch& b, step& first, uint64_t size) { add(b, first, size, with); });
}

template <typename Visit>
void for_ranks(const step& s, Visit visit) {
  for (int32_t rank = 0; rank < s.comm->num_ranks(); ++rank) visit(rank);
}

// Receives the parts of all ranks, and writes what they make together, in the order of the ranks.
void receive_reduced(step& s, void* out, uint64_t size_bytes, const reduction& with) {
  std::vector<const transfer*> parts;
  for_ranks(s, [&](int32_t peer) { parts.push_back(s.receive(peer, size_bytes)); });
  s.then = [=, device = s.comm->device()] {
    const scoped_access access(size_bytes > 0 ? device : kHostSide, out, size_bytes, TB_MAP_READ | TB_MAP_WRITE);
    std::vector<const void*> sources;
    for (const transfer* part : parts) sources.push_back(part->data);
    if (access.opened().ok())
      with.function(sources.data(), static_cast<int>(sources.size()), out, size_bytes / with.number_bytes);
    return access.opened();
  };
}

// What one rank reduces of a call.
struct slice {
  uint64_t first, size; // bytes
};

slice slice_of(int32_t rank, const step& s, uint64_t size_bytes) {
  if (size_bytes <= kSmallBytes) return {0, size_bytes};
  const auto parts = static_cast<uint64_t>(s.comm->num_ranks());
  const uint64_t most = (s.call.count + parts - 1) / parts * (size_bytes / s.call.count);
  const uint64_t first = std::min(static_cast<uint64_t>(rank) * most, size_bytes);
  return {first, std::min(most, size_bytes - first)};
}

} // namespace

result comm_create(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm) {
  if (num_ranks < 1 || num_ranks > kMostRanks)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: %d ranks; 1 to %d are possible", num_ranks, kMostRanks);
  if (rank < 0 || rank >= num_ranks)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: rank %d of %d", rank, num_ranks);
  auto comm = std::make_unique<tb_comm>();
  result r = communicator::join(device, num_ranks, rank, unique_id, &comm->shared);
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
  if (result r = check_rank(slot::send, "to rank", peer, comm); !r.ok()) return r;
  return submit_call(slot::send, {operation::point_to_point, dtype, kNoReduction, kNoRoot, count}, comm, stream,
                     [=](batch&, step& s, uint64_t size) { s.send(peer, buffer, size); });
}

result recv(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  if (result r = check_rank(slot::recv, "from rank", peer, comm); !r.ok()) return r;
  return submit_call(slot::recv, {operation::point_to_point, dtype, kNoReduction, kNoRoot, count}, comm, stream,
                     [=](batch&, step& s, uint64_t size) { s.receive(peer, buffer, size); });
}

result all_reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                  tb_stream* stream) {
  const auto add = [=](batch& b, step& reduced, uint64_t size, const ccl::reduction& with) {
    const slice own = slice_of(comm->shared->rank(), reduced, size);
    for_ranks(reduced, [&](int32_t peer) {
      const slice theirs = slice_of(peer, reduced, size);
      reduced.send(peer, at(in, theirs.first), theirs.size);
    });
    receive_reduced(reduced, at(out, own.first), own.size, with);
    if (size <= kSmallBytes) return;
    step& spread = b.add(reduced.comm, reduced.call, &reduced);
    for_ranks(spread, [&](int32_t peer) {
      const slice theirs = slice_of(peer, spread, size);
      spread.send(peer, at(out, own.first), own.size);
      spread.receive(peer, at(out, theirs.first), theirs.size);
    });
  };
  return submit_reduction(slot::all_reduce, {operation::all_reduce, dtype, reduction, kNoRoot, count}, comm, stream,
                          add);
}

result reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root, tb_comm* comm,
              tb_stream* stream) {
  if (result r = check_rank(slot::reduce, "root", root, comm); !r.ok()) return r;
  const auto add = [=](batch&, step& s, uint64_t size, const ccl::reduction& with) {
    s.send(root, in, size);
    if (s.comm->rank() == root) receive_reduced(s, out, size, with);
  };
  return submit_reduction(slot::reduce, {operation::reduce, dtype, reduction, root, count}, comm, stream, add);
}

result broadcast(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm,
                 tb_stream* stream) {
  if (result r = check_rank(slot::broadcast, "root", root, comm); !r.ok()) return r;
  const auto add = [=](batch&, step& s, uint64_t size) {
    if (s.comm->rank() == root) for_ranks(s, [&](int32_t peer) { s.send(peer, in, size); });
    s.receive(root, out, size);
  };
  return submit_call(slot::broadcast, {operation::broadcast, dtype, kNoReduction, root, count}, comm, stream, add);
}

result all_gather(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream) {
  const auto add = [=](batch&, step& s, uint64_t size) {
    for_ranks(s, [&](int32_t peer) {
      s.send(peer, in, size);
      s.receive(peer, at(out, static_cast<uint64_t>(peer) * size), size);
    });
  };
  return submit_call(slot::all_gather, {operation::all_gather, dtype, kNoReduction, kNoRoot, count}, comm, stream, add);
}

result reduce_scatter(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                      tb_stream* stream) {
  const auto add = [=](batch&, step& s, uint64_t size, const ccl::reduction& with) {
    for_ranks(s, [&](int32_t peer) { s.send(peer, at(in, static_cast<uint64_t>(peer) * size), size); });
    receive_reduced(s, out, size, with);
  };
  return submit_reduction(slot::reduce_scatter, {operation::reduce_scatter, dtype, reduction, kNoRoot, count}, comm,
                          stream, add);
}

result all_to_all(const void* in, const uint64_t* send_counts, const uint64_t* send_offsets, void* out,
                  const uint64_t* recv_counts, const uint64_t* recv_offsets, tb_dtype dtype, tb_comm* comm,
                  tb_stream* stream) {
  signature message{operation::all_to_all, dtype, kNoReduction, kNoRoot, 1}; // each has its own count
  struct part {
    uint64_t count, offset;
  };
  std::vector<part> sent, received;
  for (int32_t peer = 0; peer < comm->shared->num_ranks(); ++peer) {
    sent.push_back({send_counts[peer], send_offsets[peer]});
    received.push_back({recv_counts[peer], recv_offsets[peer]});
  }
  const auto add = [=](batch& b, step& first, uint64_t element_bytes) {
    const auto message_of = [&](const part& p) -> step& {
      signature call = message;
      call.count = p.count;
      return b.add(first.comm, call);
    };
    for_ranks(first, [&](int32_t peer) {
      const part to = sent[static_cast<size_t>(peer)], from = received[static_cast<size_t>(peer)];
      message_of(to).send(peer, at(in, to.offset * element_bytes), to.count * element_bytes);
      message_of(from).receive(peer, at(out, from.offset * element_bytes), from.count * element_bytes);
    });
  };
  return submit_call(slot::all_to_all, message, comm, stream, add);
}

} // namespace xcpu::ccl
