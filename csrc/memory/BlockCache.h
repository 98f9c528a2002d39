// The blocks that segments are cut into, and which of them are free.
#pragma once

#include <vector>

#include <c10/macros/Macros.h>

#include "csrc/memory/AllocatorState.h"
#include "csrc/memory/Block.h"
#include "csrc/memory/BlockTable.h"
#include "csrc/memory/MemoryPool.h"
#include "csrc/memory/Recorder.h"

namespace torch_backend {

/// What an allocation asks for.
struct Request {
  std::size_t requested;
  std::size_t size; // of the block
  StreamRef stream;
  bool small = false;
  c10::MempoolId_t pool{0, 0};
  ContextPtr context{};
};

/// Knows neither the plugin nor what keeps a freed block from being reused. All functions under the allocator's mutex;
/// those on the way to a cache hit and back are inline.
class BlockCache {
 public:
  BlockCache(AllocatorState& state, Recorder& recorder) : pools(state), state_(state), recorder_(recorder) {}

  BlockPool& pool_for(const Request& request) {
    return pools.of(request.pool).of(request.stream, request.small);
  }
  /// NULL unless `ptr` is an allocation that is in use.
  Block* find_allocated(const void* ptr) const {
    Block* block = table_.find(ptr);
    return C10_LIKELY(block && block->state == Block::State::kAllocated) ? block : nullptr;
  }
  /// A free block for the request, out of the free list; NULL if there is none.
  Block* take(const Request& request);
  /// Cuts `block`, which take returned or is new, to what the request needs.
  void hand_out(Block* block, Request& request);
  /// `block`, in no free list, is an allocation of `requested` bytes.
  void mark_allocated(Block* block, std::size_t requested);
  /// `block` is no allocation any more, though it may still be in use: make_free comes when it is not.
  void take_back(const Block* block);
  void make_free(Block* block);
  /// One thing less that keeps a pending block from being free.
  void finish_use(Block* block) {
    if (--block->num_pending_events == 0) {
      make_free(block);
    }
  }

  /// A new block, in no free list.
  Block* add(void* base, std::size_t size, BlockPool& pool);
  /// Takes the block of a free segment out of circulation.
  void remove(Block* block);
  /// Merges all loose blocks: what is free is then in the free lists, in the largest pieces, and counted.
  void merge_loose() {
    pools.for_each([&](MemoryPool& owner) { owner.for_each([&](BlockPool& pool) { merge_loose(pool); }); });
  }
  /// Free blocks that `select` accepts.
  template <typename Select>
  std::vector<Block*> free_blocks(Select select) {
    merge_loose();
    std::vector<Block*> blocks;
    pools.for_each([&](MemoryPool& owner) {
      owner.for_each([&](BlockPool& pool) {
        pool.free.for_each([&](Block* block) {
          if (select(*block)) {
            blocks.push_back(block);
          }
        });
      });
    });
    return blocks;
  }

  // ---- blocks that are kMoving: in no free list, and nobody gets them ----

  /// A new one between two blocks of a reservation (either may be NULL), which become a part of it if they are free.
  Block* add_between(Block* before, Block* after, void* base, std::size_t size, Reservation& reservation);
  /// The part of a free block from `begin` to `end`; the rest stays free.
  Block* take_part(Block* block, char* begin, char* end);
  /// `block`, in whichever state, keeps its first `size` bytes; the rest is another block like it, in no free list.
  Block* cut(Block* block, std::size_t size);
  /// Its neighbours are none any more: what lay between them is gone.
  void remove_between(Block* block);
  /// The free block that it becomes with its neighbours, in no free list, as take returns one.
  Block* settle(Block* block);
  void settle_as_free(Block* block) {
    block = settle(block);
    block->freed_at = block->pool->searches;
    block->pool->free.insert(block);
  }

  MemoryPools pools;

 private:
  void split(Block* block, std::size_t size);
  /// `left` becomes the block of both; `gone` is the next one and in no free list.
  void join(Block* left, Block* gone);
  static bool stays_loose(const Block& block) {
    return block.pool->small && block.is_split() && !block.reservation && !block.pool->owner.is_private();
  }
  void merge_loose(BlockPool& pool) {
    while (Block* block = pool.loose.any()) {
      pool.loose.remove(block);
      block->loose = false;
      insert_merged(block);
    }
  }
  void insert_merged(Block* block);
  /// One more (1) or less (-1) free part of a segment that is in use elsewhere, if `block` is one.
  void count_free_part(const Block* block, int64_t sign);
  /// Whether it was; it is kMoving then.
  bool take_out_if_free(Block* block);
  Block* merge_with_free_neighbours(Block* block);

  AllocatorState& state_;
  Recorder& recorder_;
  BlockArena arena_;
  BlockTable table_; // of all blocks, free or not
};

inline Block* BlockCache::add(void* base, std::size_t size, BlockPool& pool) {
  Block* block = arena_.acquire();
  block->ptr = base;
  block->size = size;
  block->pool = &pool;
  block->freed_at = pool.searches;
  table_.insert(block);
  return block;
}

inline Block* BlockCache::take(const Request& request) {
  BlockPool& pool = pool_for(request);
  ++pool.searches;
  if (pool.small) {
    if (Block* block = pool.loose.exact(request.size)) {
      pool.loose.remove(block);
      return block; // hand_out knows that it is not counted
    }
  }
  Block* block = pool.free.best_fit(request.size);
  if (C10_UNLIKELY(!block && pool.loose.any())) {
    merge_loose(pool);
    block = pool.free.best_fit(request.size);
  }
  if (!block || (!pool.small && block->size != request.size && !block->reservation &&
                 !state_.policy.fits_unsplit_limits(request.size, block->size))) {
    return nullptr;
  }
  pool.free.remove(block);
  return block;
}

inline void BlockCache::hand_out(Block* block, Request& request) {
  auto& stats = state_.stats;
  const bool small = block->pool->small;
  const bool was_split = block->is_split();
  const std::size_t remaining = block->size - request.size;
  if (block->loose) { // of the request's size
    block->loose = false;
  } else if (remaining > 0 && state_.policy.should_split(request.size, remaining, small || block->reservation)) {
    split(block, request.size);
    if (was_split) {
      stats.decrease(Metric::kInactiveSplitBytes, small, request.size);
    } else {
      stats.increase(Metric::kInactiveSplit, small, 1);
      stats.increase(Metric::kInactiveSplitBytes, small, remaining);
    }
  } else if (was_split) {
    stats.decrease(Metric::kInactiveSplit, small, 1);
    stats.decrease(Metric::kInactiveSplitBytes, small, block->size);
  }
  mark_allocated(block, request.requested);
  if (C10_UNLIKELY(recorder_.enabled())) {
    block->context = std::move(request.context);
    recorder_.record(TraceAction::kAlloc, block->ptr, block->size, *block->pool, block->context);
  }
}

inline void BlockCache::mark_allocated(Block* block, std::size_t requested) {
  auto& stats = state_.stats;
  const bool small = block->pool->small;
  block->state = Block::State::kAllocated;
  block->requested = requested;
  stats.increase(Metric::kAllocations, small, 1);
  stats.increase(Metric::kAllocatedBytes, small, block->size);
  stats.increase(Metric::kRequestedBytes, small, block->requested);
  stats.increase(Metric::kActive, small, 1);
  stats.increase(Metric::kActiveBytes, small, block->size);
  block->oversize = !small && block->size >= state_.policy.max_split_size();
  if (C10_UNLIKELY(block->oversize)) {
    stats.oversize_allocations.increase(1);
  }
}

inline void BlockCache::take_back(const Block* block) {
  const bool small = block->pool->small;
  state_.stats.decrease(Metric::kAllocations, small, 1);
  state_.stats.decrease(Metric::kAllocatedBytes, small, block->size);
  if (C10_UNLIKELY(block->oversize)) {
    state_.stats.oversize_allocations.decrease(1);
  }
}

inline void BlockCache::make_free(Block* block) {
  auto& stats = state_.stats;
  const bool small = block->pool->small;
  stats.decrease(Metric::kActive, small, 1);
  stats.decrease(Metric::kActiveBytes, small, block->size);
  stats.decrease(Metric::kRequestedBytes, small, block->requested);
  if (C10_UNLIKELY(recorder_.enabled())) {
    recorder_.record(TraceAction::kFreeCompleted, block->ptr, block->size, *block->pool, block->context);
  }
  if (C10_UNLIKELY(block->context != nullptr)) {
    block->context.reset();
  }
  block->state = Block::State::kFree;
  block->requested = 0;
  if (stays_loose(*block)) {
    block->loose = true;
    block->pool->loose.insert(block);
  } else {
    insert_merged(block);
  }
}

inline void BlockCache::insert_merged(Block* block) {
  if (block->is_split()) {
    block = merge_with_free_neighbours(block);
  }
  block->freed_at = block->pool->searches;
  block->pool->free.insert(block);
}

/// `block` keeps its first `size` bytes; the rest becomes a free block.
inline void BlockCache::split(Block* block, std::size_t size) {
  Block* rest = cut(block, size);
  rest->pool->free.insert(rest);
}

inline Block* BlockCache::cut(Block* block, std::size_t size) {
  Block* rest = add(block->begin() + size, block->size - size, *block->pool);
  rest->state = block->state;
  rest->freed_at = block->freed_at;
  rest->reservation = block->reservation;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next) {
    rest->next->prev = rest;
  } else if (C10_UNLIKELY(rest->reservation != nullptr)) {
    rest->reservation->last[rest->end()] = rest;
  }
  block->next = rest;
  block->size = size;
  return rest;
}

inline void BlockCache::join(Block* left, Block* gone) {
  table_.erase(gone->ptr);
  left->size += gone->size;
  left->next = gone->next;
  if (left->next) {
    left->next->prev = left;
  } else if (C10_UNLIKELY(left->reservation != nullptr)) {
    left->reservation->last[left->end()] = left;
  }
  arena_.recycle(gone);
}

/// The block that covers all of it.
inline Block* BlockCache::merge_with_free_neighbours(Block* block) {
  BlockPool& pool = *block->pool;
  int64_t pieces = 0; // how the number of free pieces of split segments changes, and their bytes
  int64_t bytes = 0;
  const auto take_out = [&](Block* free_one) {
    pool.free.remove(free_one);
    pieces -= 1;
    bytes -= static_cast<int64_t>(free_one->size);
  };
  if (Block* next = block->next; next && next->is_merged_free()) {
    take_out(next);
    join(block, next);
  }
  if (Block* prev = block->prev; prev && prev->is_merged_free()) {
    take_out(prev);
    join(prev, block);
    block = prev;
  }
  if (block->is_split()) {
    pieces += 1;
    bytes += static_cast<int64_t>(block->size);
  }
  state_.stats.change(Metric::kInactiveSplit, pool.small, pieces);
  state_.stats.change(Metric::kInactiveSplitBytes, pool.small, bytes);
  return block;
}

inline void BlockCache::remove(Block* block) {
  block->pool->free.remove(block);
  table_.erase(block->ptr);
  arena_.recycle(block);
}

} // namespace torch_backend
