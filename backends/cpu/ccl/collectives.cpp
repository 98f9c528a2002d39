#include "collectives.h"

#include <algorithm>
#include <vector>

namespace xcpu::ccl {
namespace {

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

} // namespace

void plan_all_reduce(plan& p, const signature& call, const buffers& b, const reduction& with) {
  const uint64_t size = call.count * b.element_bytes;
  if (p.comm().num_ranks() == 1)
    p.copy(b.out, b.in, size);
  else if (size <= kSmallBytes)
    all_reduce_small(p, call, b, size, with);
  else
    all_reduce_large(p, call, b, size, with);
}

void plan_reduce(plan& p, const signature& call, const buffers& b, const reduction& with) {
  const uint64_t size = call.count * b.element_bytes;
  if (p.comm().num_ranks() == 1)
    p.copy(b.out, b.in, size);
  else if (p.comm().rank() == call.root)
    p.reduce(call, b.in, b.out, size, with);
  else
    p.send(call.root, call, b.in, size);
}

void plan_broadcast(plan& p, const signature& call, const buffers& b) {
  const uint64_t size = call.count * b.element_bytes;
  if (p.comm().rank() != call.root) {
    p.receive(call.root, call, b.out, size);
    return;
  }
  p.copy(b.out, b.in, size);
  for_others(p, [&](int32_t peer) { p.send(peer, call, b.in, size); });
}

void plan_all_gather(plan& p, const signature& call, const buffers& b) {
  const uint64_t size = call.count * b.element_bytes;
  p.copy(at(b.out, unsigned_rank(p.comm().rank()) * size), b.in, size);
  for_others(p, [&](int32_t peer) {
    p.send(peer, call, b.in, size);
    p.receive(peer, call, at(b.out, unsigned_rank(peer) * size), size);
  });
}

void plan_reduce_scatter(plan& p, const signature& call, const buffers& b, const reduction& with) {
  const uint64_t size = call.count * b.element_bytes;
  const void* own = at(b.in, unsigned_rank(p.comm().rank()) * size);
  if (p.comm().num_ranks() == 1) {
    p.copy(b.out, own, size);
    return;
  }
  for_others(p, [&](int32_t peer) { p.send(peer, call, at(b.in, unsigned_rank(peer) * size), size); });
  p.reduce(call, own, b.out, size, with);
}

void plan_all_to_all(plan& p, const signature& call, const buffers& b, const uint64_t* send_counts,
                     const uint64_t* send_offsets, const uint64_t* recv_counts, const uint64_t* recv_offsets) {
  const auto message = [&](uint64_t count) {
    signature s = call;
    s.count = count;
    return s;
  };
  const auto add = [&](int32_t peer) {
    p.send(peer, message(send_counts[peer]), at(b.in, send_offsets[peer] * b.element_bytes),
           send_counts[peer] * b.element_bytes);
    p.receive(peer, message(recv_counts[peer]), at(b.out, recv_offsets[peer] * b.element_bytes),
              recv_counts[peer] * b.element_bytes);
  };
  for_others(p, add);
  add(p.comm().rank());
}

} // namespace xcpu::ccl
