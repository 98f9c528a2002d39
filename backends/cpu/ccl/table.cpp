#include "table.h"

#include <algorithm>
#include <memory>
#include <vector>

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

// `in` and `out` may be the same memory; of all_gather and reduce_scatter also where one is the rank's part of the other.
struct buffers {
  const void* in;
  void* out;
  uint64_t element_bytes;
};

uint64_t size_of(const signature& call, const buffers& b) {
  return call.count * b.element_bytes;
}

// Up to here every rank sends all it has to every other and adds up alone: one message instead of two, one after the other.
constexpr uint64_t kSmallBytes = 16 << 10;
// What a rank adds up at a time, and passes on while it is in its cache.
constexpr uint64_t kSliceBytes = 128 << 10;
constexpr uint64_t kSliceAlignment = 64;

const unsigned char* at(const void* data, uint64_t offset) {
  return static_cast<const unsigned char*>(data) + offset;
}

unsigned char* at(void* data, uint64_t offset) {
  return static_cast<unsigned char*>(data) + offset;
}

uint64_t unsigned_rank(int32_t rank) {
  return static_cast<uint64_t>(rank);
}

// Calls `visit` with every other rank, starting behind this one, so that not all begin with the same.
template <typename Visit>
void for_others(const plan& p, Visit visit) {
  const int32_t size = p.comm().num_ranks(), self = p.comm().rank();
  for (int32_t i = 1; i < size; ++i) visit((self + i) % size);
}

void all_reduce_small(plan& p, const signature& call, const buffers& b, uint64_t size_bytes, const reduction& with) {
  std::vector<plan::step*> sends;
  for_others(p, [&](int32_t peer) { sends.push_back(p.send(peer, call, b.in, size_bytes)); });
  plan::step* reduced = p.reduce(call, b.in, b.out, size_bytes, with);
  if (b.in == b.out)
    for (plan::step* sent : sends) p.order(sent, reduced);
}

// The part of a block that a rank adds up.
struct slice {
  uint64_t first, size;
};

slice slice_of(int32_t rank, int32_t num_ranks, uint64_t block_bytes) {
  const uint64_t parts = unsigned_rank(num_ranks);
  const uint64_t most = (block_bytes + parts - 1) / parts;
  const uint64_t size = (most + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  const uint64_t first = std::min(unsigned_rank(rank) * size, block_bytes);
  return {first, std::min(size, block_bytes - first)};
}

// One block of a large all_reduce: every rank adds up its slice, and sends it to the others.
class reduced_block {
 public:
  reduced_block(plan& p, const signature& call, const buffers& b, uint64_t first, uint64_t size_bytes)
      : plan_(p), call_(call), buffers_(b), first_(first), size_(size_bytes) {}

  void add_up(const reduction& with) {
    for_others(plan_, [&](int32_t peer) {
      const slice s = of(peer);
      plan_.send(peer, call_, at(buffers_.in, first_ + s.first), s.size);
    });
    const slice own = of(plan_.comm().rank());
    reduced_ =
        plan_.reduce(call_, at(buffers_.in, first_ + own.first), at(buffers_.out, first_ + own.first), own.size, with);
  }

  // No slice comes back before it was sent, so `out` may be `in`.
  void spread() {
    const slice own = of(plan_.comm().rank());
    for_others(plan_, [&](int32_t peer) {
      plan_.order(reduced_, plan_.send(peer, call_, at(buffers_.out, first_ + own.first), own.size));
      const slice s = of(peer);
      plan_.receive(peer, call_, at(buffers_.out, first_ + s.first), s.size);
    });
  }

 private:
  slice of(int32_t rank) const {
    return slice_of(rank, plan_.comm().num_ranks(), size_);
  }
  plan& plan_;
  const signature call_;
  const buffers buffers_;
  const uint64_t first_, size_;
  plan::step* reduced_ = nullptr;
};

// A block is added up while the one before is spread, so that no rank waits for another one's arithmetic.
void all_reduce_large(plan& p, const signature& call, const buffers& b, uint64_t size_bytes, const reduction& with) {
  const uint64_t block_bytes = kSliceBytes * unsigned_rank(p.comm().num_ranks());
  std::vector<reduced_block> blocks;
  for (uint64_t first = 0; first < size_bytes; first += block_bytes)
    blocks.emplace_back(p, call, b, first, std::min(block_bytes, size_bytes - first));
  for (size_t i = 0; i <= blocks.size(); ++i) {
    if (i < blocks.size()) blocks[i].add_up(with);
    if (i > 0) blocks[i - 1].spread();
  }
}

void plan_all_reduce(plan& p, const signature& call, const buffers& b, const reduction& with) {
  const uint64_t size = size_of(call, b);
  if (p.comm().num_ranks() == 1)
    p.copy(b.out, b.in, size);
  else if (size <= kSmallBytes)
    all_reduce_small(p, call, b, size, with);
  else
    all_reduce_large(p, call, b, size, with);
}

void plan_reduce(plan& p, const signature& call, const buffers& b, const reduction& with) {
  const uint64_t size = size_of(call, b);
  if (p.comm().num_ranks() == 1)
    p.copy(b.out, b.in, size);
  else if (p.comm().rank() == call.root)
    p.reduce(call, b.in, b.out, size, with);
  else
    p.send(call.root, call, b.in, size);
}

void plan_broadcast(plan& p, const signature& call, const buffers& b) {
  const uint64_t size = size_of(call, b);
  if (p.comm().rank() != call.root) {
    p.receive(call.root, call, b.out, size);
    return;
  }
  p.copy(b.out, b.in, size);
  for_others(p, [&](int32_t peer) { p.send(peer, call, b.in, size); });
}

void plan_all_gather(plan& p, const signature& call, const buffers& b) {
  const uint64_t size = size_of(call, b);
  p.copy(at(b.out, unsigned_rank(p.comm().rank()) * size), b.in, size);
  for_others(p, [&](int32_t peer) {
    p.send(peer, call, b.in, size);
    p.receive(peer, call, at(b.out, unsigned_rank(peer) * size), size);
  });
}

void plan_reduce_scatter(plan& p, const signature& call, const buffers& b, const reduction& with) {
  const uint64_t size = size_of(call, b);
  const void* own = at(b.in, unsigned_rank(p.comm().rank()) * size);
  if (p.comm().num_ranks() == 1) {
    p.copy(b.out, own, size);
    return;
  }
  for_others(p, [&](int32_t peer) { p.send(peer, call, at(b.in, unsigned_rank(peer) * size), size); });
  p.reduce(call, own, b.out, size, with);
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

// `add` takes the reduction as well.
template <typename Add>
result submit_reduction(slot which, const char* name, const signature& what, const void* in, void* out, extent size,
                        tb_comm* comm, tb_stream* stream, Add add) {
  const reduction with = find_reduction(what.dtype, what.reduction);
  if (!with.function)
    return failure(TB_STATUS_UNSUPPORTED, "%s: no reduction %d (TB_REDUCE_*) of elements of %s", name, what.reduction,
                   dtype_name(what.dtype).c_str());
  return submit_collective(which, what, in, out, size, comm, stream,
                           [=](plan& p, const signature& call, const buffers& b) { add(p, call, b, with); });
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
  if (result r = check_rank("send", "to rank", peer, *comm->shared); !r.ok()) return r;
  const auto add = [peer](plan& p, const signature& call, const buffers& b) {
    p.send(peer, call, b.in, size_of(call, b));
  };
  return submit_collective(slot::send, {operation::point_to_point, dtype, kNoReduction, kNoRoot, count}, buffer,
                           nullptr, {1, 0}, comm, stream, add);
}

result recv(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  if (result r = check_rank("recv", "from rank", peer, *comm->shared); !r.ok()) return r;
  const auto add = [peer](plan& p, const signature& call, const buffers& b) {
    p.receive(peer, call, b.out, size_of(call, b));
  };
  return submit_collective(slot::recv, {operation::point_to_point, dtype, kNoReduction, kNoRoot, count}, nullptr,
                           buffer, {0, 1}, comm, stream, add);
}

result all_reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                  tb_stream* stream) {
  return submit_reduction(slot::all_reduce, "all_reduce", {operation::all_reduce, dtype, reduction, kNoRoot, count}, in,
                          out, {1, 1}, comm, stream, plan_all_reduce);
}

result reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root, tb_comm* comm,
              tb_stream* stream) {
  if (result r = check_rank("reduce", "root", root, *comm->shared); !r.ok()) return r;
  return submit_reduction(slot::reduce, "reduce", {operation::reduce, dtype, reduction, root, count}, in, out,
                          {1, only_at(root, comm)}, comm, stream, plan_reduce);
}

result broadcast(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm,
                 tb_stream* stream) {
  if (result r = check_rank("broadcast", "root", root, *comm->shared); !r.ok()) return r;
  const signature what{operation::broadcast, dtype, kNoReduction, root, count};
  return submit_collective(slot::broadcast, what, in, out, {only_at(root, comm), 1}, comm, stream, plan_broadcast);
}

result all_gather(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream) {
  const signature what{operation::all_gather, dtype, kNoReduction, kNoRoot, count};
  return submit_collective(slot::all_gather, what, in, out, {1, num_ranks(comm)}, comm, stream, plan_all_gather);
}

result reduce_scatter(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                      tb_stream* stream) {
  return submit_reduction(slot::reduce_scatter, "reduce_scatter",
                          {operation::reduce_scatter, dtype, reduction, kNoRoot, count}, in, out, {num_ranks(comm), 1},
                          comm, stream, plan_reduce_scatter);
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
                             const auto message = [&](uint64_t count) {
                               signature s = call;
                               s.count = count;
                               return s;
                             };
                             const auto add = [&](int32_t peer) {
                               const auto rank = static_cast<size_t>(peer);
                               p.send(peer, message(to[rank]), at(b.in, to_at[rank] * b.element_bytes),
                                      to[rank] * b.element_bytes);
                               p.receive(peer, message(from[rank]), at(b.out, from_at[rank] * b.element_bytes),
                                         from[rank] * b.element_bytes);
                             };
                             for_others(p, add);
                             add(p.comm().rank());
                           });
}

} // namespace xcpu::ccl
