// The way to the plugin: segments are requested, and given back. See Note [Caching allocator].
#include <algorithm>
#include <chrono>

#include <c10/util/Exception.h>

#include "csrc/core/Status.h"
#include "csrc/core/allocator/CachingAllocator.h"
#include "csrc/core/allocator/OutOfMemory.h"

namespace torch_backend {
namespace {

// How long a request that would fail waits for other threads that are giving segments back.
constexpr auto kReleaseWait = std::chrono::seconds(1);

} // namespace

// ---- getting ----

/// A block of at least request.size that is in no free list. Drops and retakes the mutex.
Block* CachingAllocator::allocate_from_plugin(Request& request, Lock& lock) {
  if (!lent_.empty()) {
    lock.unlock();
    collect_lent();
    lock.lock();
    if (Block* block = take(pool_for(request), request.size)) {
      return block;
    }
  }
  collect_garbage(lock);
  Refusal refusal;
  if (Block* block = request_segment(request, policy_.segment_size(request.size), refusal, lock)) {
    return block;
  }
  ++stats_.num_alloc_retries;
  if (Block* block = recover(request, refusal, lock)) {
    return block;
  }
  throw_out_of_memory(request, refusal, lock);
}

/// The plugin is full: wait for pending blocks, give back what is cached, ask again.
Block* CachingAllocator::recover(Request& request, Refusal& refusal, Lock& lock) {
  lock.unlock();
  process_events(true);
  lock.lock();
  if (Block* block = take(pool_for(request), request.size)) {
    return block;
  }
  const std::size_t wanted = policy_.segment_size(request.size);
  if (auto oversize = detach_oversize(request); !oversize.empty()) {
    lock.unlock();
    free_segments(std::move(oversize));
    lock.lock();
    if (Block* block = request_segment(request, wanted, refusal, lock)) {
      return block;
    }
  }
  release_cached(lock);
  if (Block* block = take(pool_for(request), request.size)) {
    return block; // freed by another thread in the meantime
  }
  if (Block* block = request_segment(request, wanted, refusal, lock)) {
    return block;
  }
  const bool others_release = releasing_ > 0;
  if (others_release) {
    segments_freed_.wait_for(lock, kReleaseWait, [this] { return releasing_ == 0; });
    if (Block* block = take(pool_for(request), request.size)) {
      return block;
    }
  }
  // Segments are larger than what one request needs; the last resort is no larger than that.
  const std::size_t least = policy_.least_segment_size(request.size);
  return least < wanted || others_release ? request_segment(request, least, refusal, lock) : nullptr;
}

/// NULL if the plugin or the limit refuses; everything else the plugin reports is thrown.
Block* CachingAllocator::request_segment(Request& request, std::size_t segment_size, Refusal& refusal, Lock& lock) {
  const auto held = static_cast<std::size_t>(stats_.current(Metric::kReservedBytes)) + requesting_bytes_;
  refusal.limit_hit = limit_ && held + segment_size > *limit_;
  if (refusal.limit_hit) {
    return nullptr;
  }
  BlockPool& pool = pool_for(request);
  requesting_bytes_ += segment_size;
  ++pool.owner.num_segments; // keeps the pool alive
  lock.unlock();
  void* base = nullptr;
  tb_status status = TB_STATUS_OK;
  std::exception_ptr error;
  try {
    status = api_.memory_allocate(device_, TB_MEMORY_DEVICE, segment_size, pool.stream.handle, &base);
    if (status == TB_STATUS_OUT_OF_MEMORY) {
      refusal.plugin_text = take_error_text();
    } else if (status != TB_STATUS_OK) {
      throw_status(status, api_.name(), "memory_allocate", device_);
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  requesting_bytes_ -= segment_size;
  if (base && !error && status == TB_STATUS_OK) {
    return add_segment(base, segment_size, pool, request.context);
  }
  --pool.owner.num_segments;
  erase_pool_if_unused(pool.owner.id);
  if (error) {
    std::rethrow_exception(error);
  }
  return nullptr;
}

/// The one block of a segment the plugin has just allocated.
Block* CachingAllocator::add_segment(void* base, std::size_t size, BlockPool& pool, ContextPtr context) {
  Block* block = arena_.acquire();
  block->ptr = base;
  block->size = size;
  block->pool = &pool;
  block->freed_at = pool.searches;
  table_.insert(block);
  const bool oversize = !pool.small && size >= policy_.max_split_size();
  segments_[base] = {base, size, &pool, block, oversize, context};
  ++stats_.num_device_alloc;
  stats_.increase(Metric::kSegments, pool.small, 1);
  stats_.increase(Metric::kReservedBytes, pool.small, size);
  if (pool.owner.is_private()) {
    stats_.increase_pool_reserved(pool.owner.id, pool.small, size);
  }
  if (oversize) {
    stats_.oversize_segments.increase(1);
  }
  trace(TraceAction::kSegmentAlloc, base, size, pool, std::move(context));
  return block;
}

// ---- giving back ----

/// Takes free blocks that are whole segments out of circulation. The caller passes the result to free_segments.
std::vector<Segment> CachingAllocator::detach(const std::vector<Block*>& blocks) {
  std::vector<Segment> segments;
  segments.reserve(blocks.size());
  for (Block* block : blocks) {
    block->pool->free.remove(block);
    const auto found = segments_.find(block->ptr);
    segments.push_back(std::move(found->second));
    segments.back().first = nullptr;
    segments_.erase(found);
    table_.erase(block->ptr);
    arena_.recycle(block);
  }
  releasing_ += segments.empty() ? 0 : 1;
  return segments;
}

/// Every free block that is a whole segment, of the pools `select` accepts.
std::vector<Segment> CachingAllocator::detach_cached(const std::function<bool(const MemoryPool&)>& select) {
  std::vector<Block*> blocks;
  const auto collect = [&](MemoryPool& owner) {
    if (select(owner)) {
      owner.for_each([&](BlockPool& pool) {
        pool.free.for_each([&](Block* block) {
          if (!block->is_split()) {
            blocks.push_back(block);
          }
        });
      });
    }
  };
  collect(default_pool_);
  for (auto& [id, owner] : private_pools_) {
    collect(*owner);
  }
  return detach(blocks);
}

/// Oversize blocks are not cut, so a request of another size cannot use them. The largest ones, until they make room.
std::vector<Segment> CachingAllocator::detach_oversize(const Request& request) {
  const std::size_t limit = policy_.max_split_size();
  if (request.size < limit || (captures_ > 0 && async_)) {
    return {};
  }
  std::vector<Block*> blocks;
  pool_for(request).free.for_each([&](Block* block) {
    if (block->size >= limit && !block->is_split()) {
      blocks.push_back(block);
    }
  });
  std::sort(blocks.begin(), blocks.end(), [](const Block* a, const Block* b) { return a->size > b->size; });
  std::size_t room = 0;
  const auto enough = std::find_if(blocks.begin(), blocks.end(), [&](const Block* block) {
    const bool before = room >= request.size;
    room += block->size;
    return before;
  });
  blocks.erase(enough, blocks.end());
  return detach(blocks);
}

void CachingAllocator::release_cached(Lock& lock) {
  if (captures_ > 0 && async_) {
    return; // waiting for a stream would fail the capture
  }
  auto segments = detach_cached([](const MemoryPool& pool) { return !pool.is_private() || pool.use_count == 0; });
  lock.unlock();
  free_segments(std::move(segments));
  lock.lock();
}

/// Over the threshold, free blocks that were not used for longest go first.
void CachingAllocator::collect_garbage(Lock& lock) {
  const double threshold = policy_.garbage_collection_threshold();
  if (threshold <= 0.0 || (captures_ > 0 && async_)) {
    return;
  }
  const std::size_t total = limit_ ? *limit_ : api_.properties(device_).total_memory_bytes;
  const auto goal = static_cast<std::size_t>(threshold * static_cast<double>(total));
  const auto reserved = static_cast<std::size_t>(stats_.current(Metric::kReservedBytes));
  if (total == 0 || reserved <= goal) {
    return;
  }
  std::vector<Block*> blocks;
  default_pool_.for_each([&](BlockPool& pool) {
    pool.free.for_each([&](Block* block) {
      if (!pool.small && !block->is_split()) {
        blocks.push_back(block);
      }
    });
  });
  const auto age = [](const Block* block) { return block->pool->searches - block->freed_at; };
  std::sort(blocks.begin(), blocks.end(), [&](const Block* a, const Block* b) { return age(a) > age(b); });
  std::size_t reclaimed = 0;
  const auto enough = std::find_if(blocks.begin(), blocks.end(), [&](const Block* block) {
    const bool before = reclaimed >= reserved - goal;
    reclaimed += block->size;
    return before;
  });
  blocks.erase(enough, blocks.end());
  auto segments = detach(blocks);
  lock.unlock();
  free_segments(std::move(segments));
  lock.lock();
}

void CachingAllocator::free_segments(std::vector<Segment> segments) {
  if (segments.empty()) {
    return;
  }
  std::vector<Segment> kept;
  const auto error = wait_for_streams(segments, &kept);
  for (const auto& segment : segments) {
    api_.memory_free(device_, TB_MEMORY_DEVICE, segment.base, segment.size, segment.pool->stream.handle);
  }
  Lock lock(mutex_);
  for (const auto& segment : segments) {
    const BlockPool& pool = *segment.pool;
    ++stats_.num_device_free;
    stats_.decrease(Metric::kSegments, pool.small, 1);
    stats_.decrease(Metric::kReservedBytes, pool.small, segment.size);
    if (pool.owner.is_private()) {
      stats_.decrease_pool_reserved(pool.owner.id, pool.small, segment.size);
    }
    if (segment.oversize) {
      stats_.oversize_segments.decrease(1);
    }
    trace(TraceAction::kSegmentFree, segment.base, segment.size, pool, segment.context);
    --pool.owner.num_segments;
    erase_pool_if_unused(pool.owner.id);
  }
  for (auto& segment : kept) {
    reattach_segment(std::move(segment));
  }
  if (--releasing_ == 0) {
    segments_freed_.notify_all();
  }
  lock.unlock();
  if (error) {
    std::rethrow_exception(error);
  }
}

/// Work enqueued on a segment's stream may still use it, unless the plugin's free is ordered by the stream itself.
/// Segments of streams that cannot be waited for move to `out_kept`; the first reason is returned.
std::exception_ptr CachingAllocator::wait_for_streams(std::vector<Segment>& segments, std::vector<Segment>* out_kept) {
  std::exception_ptr error;
  if (!async_ || stream_ordered_) {
    return error;
  }
  std::map<c10::StreamId, bool> waited; // whether it worked
  for (auto& segment : segments) {
    const auto& stream = segment.pool->stream;
    const auto [entry, is_new] = waited.emplace(stream.id, true);
    if (!is_new) {
      continue;
    }
    try {
      api_.stream_synchronize(device_, stream.handle);
    } catch (...) {
      if (api_.is_lost(device_)) {
        continue; // there is nothing left to wait for
      }
      entry->second = false;
      error = error ? error : std::current_exception();
    }
  }
  const auto keep = std::stable_partition(segments.begin(), segments.end(),
                                          [&](const Segment& segment) { return waited.at(segment.pool->stream.id); });
  std::move(keep, segments.end(), std::back_inserter(*out_kept));
  segments.erase(keep, segments.end());
  return error;
}

void CachingAllocator::reattach_segment(Segment segment) {
  Block* block = arena_.acquire();
  block->ptr = segment.base;
  block->size = segment.size;
  block->pool = segment.pool;
  block->freed_at = segment.pool->searches;
  segment.first = block;
  table_.insert(block);
  segment.pool->free.insert(block);
  segments_[segment.base] = std::move(segment);
}

void CachingAllocator::empty_cache(c10::MempoolId_t pool) {
  collect_lent();
  process_events(true);
  Lock lock(mutex_);
  TORCH_CHECK(captures_ == 0 || !async_,
              "The cache cannot be emptied while a graph is being captured: that waits for the "
              "device.");
  auto segments = detach_cached([&](const MemoryPool& candidate) {
    if (pool.first != 0 || pool.second != 0) {
      return candidate.id == pool;
    }
    return !candidate.is_private() || candidate.use_count == 0;
  });
  lock.unlock();
  free_segments(std::move(segments));
}

bool CachingAllocator::can_empty_cache() {
  const Lock lock(mutex_);
  return captures_ == 0 || !async_;
}

// ---- other processes ----

void CachingAllocator::export_memory(void* ptr, tb_ipc_handle* out_segment, uint64_t* out_offset) {
  Lock lock(mutex_);
  Block* const block = table_.find(ptr);
  TORCH_CHECK(block && block->state == Block::State::kAllocated, "Memory at ", ptr, " is not in use on ", api_.name(),
              ":", static_cast<int>(device_), ", so it cannot be lent to another process.");
  block->lent = true;
  void* const base = const_cast<void*>(std::prev(segments_.upper_bound(ptr))->first);
  *out_offset = static_cast<uint64_t>(static_cast<const char*>(ptr) - static_cast<const char*>(base));
  auto handle = segments_.at(base).handle;
  if (!handle) {
    // The segment stays, because the caller uses the block.
    lock.unlock();
    tb_ipc_handle fresh{};
    api_.ipc_export(device_, base, &fresh);
    lock.lock();
    auto& known = segments_.at(base).handle;
    known = known ? known : std::make_shared<const tb_ipc_handle>(fresh);
    handle = known;
  }
  *out_segment = *handle;
}

// ---- out of memory ----

void CachingAllocator::throw_out_of_memory(const Request& request, const Refusal& refusal, Lock& lock) {
  ++stats_.num_ooms;
  const auto held = totals();
  OutOfMemoryReport report;
  report.module = api_.name();
  report.device = c10::str(api_.name(), ":", static_cast<int>(device_));
  report.requested = request.requested;
  report.allocated = held.allocated;
  report.reserved = held.reserved;
  report.private_pools = static_cast<std::size_t>(stats_.private_pools_reserved());
  report.limit = limit_;
  report.limit_hit = refusal.limit_hit;
  report.plugin_text = refusal.plugin_text;
  const auto observers = observers_;
  lock.unlock();
  std::size_t free = 0;
  try {
    std::tie(free, report.device_total) = memory_info();
    report.device_free = free;
  } catch (const std::exception&) { // the error at hand matters more
  }
  lock.lock();
  if (history_enabled()) {
    trace(TraceAction::kOutOfMemory, reinterpret_cast<const void*>(free), request.requested, pool_for(request),
          request.context);
  }
  lock.unlock();
  for (const auto& observer : observers) {
    observer(device_, request.requested, report.device_total, free);
  }
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(request.requested), held.allocated, held.reserved,
                                   c10::Device(c10::DeviceType::PrivateUse1, device_));
  TORCH_CHECK_WITH(OutOfMemoryError, false, out_of_memory_text(report));
}

} // namespace torch_backend
