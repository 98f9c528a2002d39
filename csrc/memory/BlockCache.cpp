// The blocks of memory that comes and goes within a segment.
#include "csrc/memory/BlockCache.h"

namespace torch_backend {

void BlockCache::count_free_part(const Block* block, int64_t sign) {
  if (block->is_split()) {
    state_.stats.change(Metric::kInactiveSplit, block->pool->small, sign);
    state_.stats.change(Metric::kInactiveSplitBytes, block->pool->small, sign * static_cast<int64_t>(block->size));
  }
}

bool BlockCache::take_out_if_free(Block* block) {
  if (!block || block->state != Block::State::kFree) {
    return false;
  }
  count_free_part(block, -1);
  block->pool->free.remove(block);
  block->state = Block::State::kMoving;
  return true;
}

Block* BlockCache::add_between(Block* before, Block* after, void* base, std::size_t size, Reservation& reservation) {
  const bool takes_before = take_out_if_free(before);
  const bool takes_after = take_out_if_free(after);
  Block* block = add(base, size, *reservation.pool);
  block->state = Block::State::kMoving;
  block->reservation = &reservation;
  block->prev = before;
  block->next = after;
  if (before) {
    before->next = block;
  }
  if (after) {
    after->prev = block;
  }
  if (takes_after) {
    join(block, after);
  }
  if (takes_before) {
    join(before, block);
    block = before;
  }
  return block;
}

Block* BlockCache::take_part(Block* block, char* begin, char* end) {
  take_out_if_free(block);
  Block* const head = block;
  if (begin > block->begin()) {
    block = cut(block, static_cast<std::size_t>(begin - block->begin()));
  }
  if (end < block->end()) {
    settle_as_free(cut(block, static_cast<std::size_t>(end - block->begin())));
  }
  if (head != block) {
    settle_as_free(head);
  }
  return block;
}

void BlockCache::remove_between(Block* block) {
  const auto is_free = [](const Block* other) { return other && other->state == Block::State::kFree; };
  Block* const before = block->prev;
  Block* const after = block->next;
  for (Block* other : {before, after}) {
    if (is_free(other)) {
      count_free_part(other, -1);
    }
  }
  if (before) {
    before->next = nullptr;
  }
  if (after) {
    after->prev = nullptr;
  }
  for (Block* other : {before, after}) {
    if (is_free(other)) {
      count_free_part(other, 1);
    }
  }
  table_.erase(block->ptr);
  arena_.recycle(block);
}

Block* BlockCache::settle(Block* block) {
  block->state = Block::State::kFree;
  return block->is_split() ? merge_with_free_neighbours(block) : block;
}

} // namespace torch_backend
