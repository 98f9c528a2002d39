#include "csrc/memory/PoolCheckpoint.h"

#include <c10/util/Exception.h>

#include "csrc/memory/CachingAllocator.h"

namespace torch_backend {
namespace {

std::vector<Block*> allocated_blocks(const Segments& segments, c10::MempoolId_t pool) {
  std::vector<Block*> blocks;
  for (const auto& [base, segment] : segments.all()) {
    if (segment.pool->owner.id != pool) {
      continue;
    }
    for (Block* block = segment.first; block; block = block->next) {
      if (block->state == Block::State::kAllocated) {
        blocks.push_back(block);
      }
    }
  }
  return blocks;
}

/// The free block of `segments` that has all of `use`; NULL if there is none.
Block* find_free(const Segments& segments, const PoolCheckpoint::Use& use) {
  const auto* begin = static_cast<const char*>(use.ptr);
  const Segment* segment = segments.find(begin);
  for (Block* block = segment ? segment->first : nullptr; block; block = block->next) {
    if (block->state == Block::State::kFree && block->begin() <= begin && begin + use.size <= block->end()) {
      return block;
    }
  }
  return nullptr;
}

} // namespace

PoolCheckpoint CachingAllocator::checkpoint_pool(c10::MempoolId_t pool) const {
  const Lock lock(state_.mutex);
  PoolCheckpoint checkpoint{pool, {}};
  for (const Block* block : allocated_blocks(segments_, pool)) {
    checkpoint.uses.push_back({block->ptr, block->size, block->requested});
  }
  return checkpoint;
}

void CachingAllocator::restore_pool(const PoolCheckpoint& checkpoint) {
  const auto pool = checkpoint.pool;
  pending_.process(true);
  const Lock lock(state_.mutex);
  const auto blocks = allocated_blocks(segments_, pool);
  for (const Block* block : blocks) {
    TORCH_CHECK(!block->lent, "Memory pool (", pool.first, ", ", pool.second, ") of ", state_.name,
                " cannot be set to what was in use of it before: other processes use ", block->size, " bytes of it.");
  }
  for (Block* block : blocks) {
    block->uses.clear();
    blocks_.take_back(block);
    blocks_.make_free(block);
  }
  for (const auto& use : checkpoint.uses) {
    auto* const begin = static_cast<char*>(use.ptr);
    Block* const block = find_free(segments_, use);
    TORCH_CHECK(block && block->pool->owner.id == pool, "Memory pool (", pool.first, ", ", pool.second, ") of ",
                state_.name, " cannot be set to what was in use of it before: ", use.size, " bytes at ", use.ptr,
                " are not free in it any more.");
    blocks_.mark_allocated(blocks_.take_part(block, begin, begin + use.size), use.requested);
  }
}

} // namespace torch_backend
