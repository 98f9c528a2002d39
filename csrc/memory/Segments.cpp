#include "csrc/memory/Segments.h"

#include <algorithm>
#include <chrono>

#include <c10/util/Exception.h>

#include "csrc/core/Status.h"

namespace torch_backend {
namespace {

// How long a request that would fail waits for other threads that are giving segments back.
constexpr auto kReleaseWait = std::chrono::seconds(1);

/// The first of `blocks` in the order of `before` that together have `bytes`.
template <typename Before>
std::vector<Block*> first_with(std::size_t bytes, std::vector<Block*> blocks, Before before) {
  std::sort(blocks.begin(), blocks.end(), before);
  std::size_t sum = 0;
  const auto enough = std::find_if(blocks.begin(), blocks.end(), [&](const Block* block) {
    const bool reached = sum >= bytes;
    sum += block->size;
    return reached;
  });
  blocks.erase(enough, blocks.end());
  return blocks;
}

} // namespace

Segments::Segments(AllocatorState& state, Recorder& recorder, BlockCache& blocks)
    : state_(state),
      recorder_(recorder),
      blocks_(blocks),
      stream_ordered_(state.api.has_capability(state.device, TB_CAP_STREAM_ALLOC)),
      expandable_(state, recorder, blocks, segments_) {}

const Segment* Segments::find(const void* ptr) const {
  const auto after = segments_.upper_bound(ptr);
  return after == segments_.begin() ? nullptr : &std::prev(after)->second;
}

// ---- getting ----

bool Segments::would_exceed_limit(std::size_t size) const {
  const auto held = static_cast<std::size_t>(state_.stats.current(Metric::kReservedBytes)) + requesting_bytes_;
  return limit_ && held + size > *limit_;
}

Block* Segments::request(const Request& request, Refusal& refusal, Lock& lock) {
  if (state_.policy.uses_expandable_segments()) {
    if (Block* block = blocks_.take(request)) {
      return block; // freed in the meantime
    }
    const auto claim = expandable_.claim(request, lock);
    if (claim.block) {
      return grow(claim, request, refusal, lock);
    }
  }
  return allocate(request, state_.policy.segment_size(request.size), refusal, lock);
}

Block* Segments::grow(const ExpandableSegments::Move& claim, const Request& request, Refusal& refusal, Lock& lock) {
  std::size_t committed = 0;
  std::exception_ptr error;
  refusal.limit_hit = would_exceed_limit(claim.size);
  if (!refusal.limit_hit) {
    requesting_bytes_ += claim.size;
    lock.unlock();
    try {
      expandable_.commit(claim, &committed, &refusal.plugin_text);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    requesting_bytes_ -= claim.size;
  }
  Block* block = expandable_.finish_claim(claim, committed, request);
  expandable_.release_addresses(lock);
  if (error) {
    std::rethrow_exception(error);
  }
  return block;
}

Block* Segments::allocate(const Request& request, std::size_t segment_size, Refusal& refusal, Lock& lock) {
  refusal.limit_hit = would_exceed_limit(segment_size);
  if (refusal.limit_hit) {
    return nullptr;
  }
  BlockPool& pool = blocks_.pool_for(request);
  requesting_bytes_ += segment_size;
  ++pool.owner.num_segments; // keeps the pool alive
  lock.unlock();
  void* base = nullptr;
  tb_status status = TB_STATUS_OK;
  std::exception_ptr error;
  try {
    status = state_.api.memory_allocate(state_.device, TB_MEMORY_DEVICE, segment_size, pool.stream.handle, &base);
    if (status == TB_STATUS_OUT_OF_MEMORY) {
      refusal.plugin_text = take_error_text();
    } else if (status != TB_STATUS_OK) {
      throw_status(status, state_.api.name(), "memory_allocate", state_.device);
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  requesting_bytes_ -= segment_size;
  if (base && !error && status == TB_STATUS_OK) {
    Block* block = blocks_.add(base, segment_size, pool);
    const bool oversize = !pool.small && segment_size >= state_.policy.max_split_size();
    segments_[base] = {base, segment_size, &pool, block, oversize, request.context};
    auto& stats = state_.stats;
    ++stats.num_device_alloc;
    stats.increase(Metric::kSegments, pool.small, 1);
    stats.increase(Metric::kReservedBytes, pool.small, segment_size);
    if (pool.owner.is_private()) {
      stats.increase_pool_reserved(pool.owner.id, pool.small, segment_size);
    }
    if (oversize) {
      stats.oversize_segments.increase(1);
    }
    recorder_.record(TraceAction::kSegmentAlloc, base, segment_size, pool, request.context);
    return block;
  }
  blocks_.pools.drop_segment(pool.owner);
  if (error) {
    std::rethrow_exception(error);
  }
  return nullptr;
}

// ---- giving back ----

void Segments::release(const std::vector<Block*>& blocks, Lock& lock) {
  if (blocks.empty()) {
    return;
  }
  std::vector<Departure> departures;
  departures.reserve(blocks.size());
  for (Block* block : blocks) {
    departures.push_back(depart(block));
  }
  ++releasing_;
  lock.unlock();
  const auto error = wait_for_streams(departures);
  for (auto& departure : departures) {
    give_back(departure);
  }
  lock.lock();
  for (auto& departure : departures) {
    finish(departure);
  }
  expandable_.release_addresses(lock);
  if (--releasing_ == 0) {
    all_released_.notify_all();
  }
  if (error) {
    lock.unlock();
    std::rethrow_exception(error);
  }
}

/// Out of circulation.
Segments::Departure Segments::depart(Block* block) {
  Departure departure{block->pool->stream};
  if (block->reservation) {
    departure.pages = expandable_.take_pages(block);
  } else {
    departure.segment = std::move(segments_.extract(block->ptr).mapped());
    blocks_.remove(block);
  }
  return departure;
}

/// Work enqueued on a segment's stream may still use it, unless the plugin's free is ordered by the stream itself.
/// What is of streams that cannot be waited for stays; the first reason is returned.
std::exception_ptr Segments::wait_for_streams(std::vector<Departure>& departures) {
  std::exception_ptr error;
  if (!state_.async) {
    return error;
  }
  std::map<c10::StreamId, bool> waited; // whether it worked
  for (auto& departure : departures) {
    if (stream_ordered_ && !departure.pages.block) {
      continue;
    }
    const auto& stream = departure.stream;
    const auto [entry, is_new] = waited.emplace(stream.id, true);
    if (is_new) {
      try {
        state_.api.stream_synchronize(state_.device, stream.handle);
      } catch (...) {
        if (!state_.api.is_lost(state_.device)) { // else there is nothing left to wait for
          entry->second = false;
          error = error ? error : std::current_exception();
        }
      }
    }
    departure.stays = !entry->second;
  }
  return error;
}

/// Not under the mutex.
void Segments::give_back(Departure& departure) noexcept {
  if (departure.stays) {
    return;
  }
  if (departure.pages.block) {
    departure.decommitted = expandable_.decommit(departure.pages);
  } else {
    const Segment& segment = departure.segment;
    state_.api.memory_free(state_.device, TB_MEMORY_DEVICE, segment.base, segment.size, departure.stream.handle);
  }
}

void Segments::finish(Departure& departure) {
  if (departure.pages.block) {
    return expandable_.finish_release(departure.pages, departure.decommitted);
  }
  Segment& segment = departure.segment;
  BlockPool& pool = *segment.pool;
  if (departure.stays) {
    segment.first = blocks_.add(segment.base, segment.size, pool);
    pool.free.insert(segment.first);
    segments_[segment.base] = std::move(segment);
    return;
  }
  auto& stats = state_.stats;
  ++stats.num_device_free;
  stats.decrease(Metric::kSegments, pool.small, 1);
  stats.decrease(Metric::kReservedBytes, pool.small, segment.size);
  if (pool.owner.is_private()) {
    stats.decrease_pool_reserved(pool.owner.id, pool.small, segment.size);
  }
  if (segment.oversize) {
    stats.oversize_segments.decrease(1);
  }
  recorder_.record(TraceAction::kSegmentFree, segment.base, segment.size, pool, segment.context);
  blocks_.pools.drop_segment(pool.owner);
}

void Segments::release_cached(Lock& lock) {
  if (!blocks_.pools.capturing()) {
    const auto is_unheld = [](const Block& block) {
      const MemoryPool& owner = block.pool->owner;
      return !owner.is_private() || owner.use_count == 0;
    };
    release(free_segments(is_unheld), lock);
  }
}

/// Oversize blocks are not cut, so a request of another size cannot use them.
bool Segments::release_oversize(const Request& request, Lock& lock) {
  const std::size_t limit = state_.policy.max_split_size();
  if (request.size < limit || blocks_.pools.capturing()) {
    return false;
  }
  const BlockPool& pool = blocks_.pool_for(request);
  const auto fits = [&](const Block& block) { return block.pool == &pool && block.size >= limit; };
  const auto is_larger = [](const Block* a, const Block* b) { return a->size > b->size; };
  const auto blocks = first_with(request.size, free_segments(fits), is_larger);
  release(blocks, lock);
  return !blocks.empty();
}

void Segments::collect_garbage(Lock& lock) {
  const double threshold = state_.policy.garbage_collection_threshold();
  if (threshold <= 0.0 || blocks_.pools.capturing()) {
    return;
  }
  std::size_t total = limit_.value_or(0);
  if (!limit_) {
    lock.unlock();
    total = state_.total_memory();
    lock.lock();
  }
  const auto goal = static_cast<std::size_t>(threshold * static_cast<double>(total));
  const auto reserved = static_cast<std::size_t>(state_.stats.current(Metric::kReservedBytes));
  if (total == 0 || reserved <= goal) {
    return;
  }
  const auto is_large = [](const Block& block) { return !block.pool->small && !block.pool->owner.is_private(); };
  const auto age = [](const Block* block) { return block->pool->searches - block->freed_at; };
  const auto is_older = [&](const Block* a, const Block* b) { return age(a) > age(b); };
  release(first_with(reserved - goal, free_segments(is_large), is_older), lock);
}

bool Segments::wait_for_releases(Lock& lock) {
  if (releasing_ == 0) {
    return false;
  }
  all_released_.wait_for(lock, kReleaseWait, [this] { return releasing_ == 0; });
  return true;
}

// ---- how much there is ----

std::pair<std::size_t, std::size_t> Segments::memory_info() const {
  uint64_t free = 0;
  uint64_t total = 0;
  if (state_.api.memory_info(state_.device, &free, &total) == TB_STATUS_OK) {
    return {free, total};
  }
  total = state_.api.properties(state_.device).total_memory_bytes;
  const Lock lock(state_.mutex);
  const auto held = static_cast<uint64_t>(state_.stats.current(Metric::kReservedBytes));
  return {total - std::min(held, total), total};
}

void Segments::set_memory_fraction(double fraction) {
  TORCH_CHECK_VALUE(fraction >= 0.0 && fraction <= 1.0, "The memory fraction must lie between 0 and 1, got ", fraction,
                    ".");
  const std::size_t total = state_.total_memory();
  TORCH_CHECK_NOT_IMPLEMENTED(total > 0 || fraction == 1.0, state_.name,
                              " does not say how much memory it has, so no fraction of it can be set.");
  const Lock lock(state_.mutex);
  fraction_ = fraction;
  limit_ =
      fraction == 1.0 ? std::nullopt : std::optional(static_cast<std::size_t>(fraction * static_cast<double>(total)));
}

} // namespace torch_backend
