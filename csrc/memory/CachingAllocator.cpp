// The way to a cache hit and back, what a miss tries in which order, and what callers ask.
#include "csrc/memory/CachingAllocator.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <tuple>

#include <c10/util/Exception.h>

#include "csrc/core/Status.h"
#include "csrc/memory/OutOfMemory.h"

namespace torch_backend {

CachingAllocator::CachingAllocator(DeviceApi& api, c10::DeviceIndex device)
    : state_(api, device),
      recorder_(state_),
      blocks_(state_, recorder_),
      segments_(state_, recorder_, blocks_),
      loans_(state_, blocks_, segments_),
      pending_(state_, blocks_, loans_) {}

CachingAllocator::~CachingAllocator() {
  // A wait that fails reports an error of earlier work, and the next one succeeds.
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      pending_.process(true);
      Lock lock(state_.mutex);
      segments_.release(segments_.free_segments([](const Block&) { return true; }), lock);
      if (segments_.all().empty()) {
        return;
      }
    } catch (const c10::Error& error) {
      if (!state_.api.is_lost(state_.device)) {
        TORCH_WARN("While giving back the memory of ", state_.name, ": ", error.what_without_backtrace());
      }
    }
  }
}

// ---- allocate ----

void* CachingAllocator::allocate(std::size_t size, const StreamRef& stream) {
  if (C10_UNLIKELY(refuses_work())) {
    refuse();
  }
  Request request{size, size, state_.async ? stream : StreamRef{}, false, {0, 0}, nullptr};
  if (C10_UNLIKELY(state_.attention.load(std::memory_order_relaxed) != 0)) {
    prepare(request, stream);
  }
  Lock lock(state_.mutex);
  if (C10_UNLIKELY(size > state_.policy.largest_request())) {
    throw_out_of_memory(request, Refusal{}, lock);
  }
  request.size = state_.policy.block_size(size);
  request.small = request.size <= kSmallSize;
  Block* block = blocks_.take(request);
  if (C10_UNLIKELY(!block)) {
    block = allocate_from_plugin(request, lock);
  }
  blocks_.hand_out(block, request);
  void* const ptr = block->ptr;
  const auto change = static_cast<int64_t>(block->size);
  const auto after = totals();
  lock.unlock();
  report_to_profiler(ptr, change, after);
  return ptr;
}

/// The plugin says why, in the words of every other call.
void CachingAllocator::refuse() {
  state_.api.check_usable(state_.device, "memory_allocate");
  throw_status(TB_STATUS_DEVICE_LOST, state_.api.name(), "memory_allocate", state_.device);
}

void CachingAllocator::prepare(Request& request, const StreamRef& stream) {
  const uint32_t attention = state_.attention.load(std::memory_order_relaxed);
  request.context = recorder_.gather_context(RecordContext::kState);
  if (attention & AllocatorState::kPendingEvents) {
    pending_.process(false);
  }
  if (!(attention & AllocatorState::kRoutes)) {
    return;
  }
  Lock lock(state_.mutex);
  const auto routes = blocks_.pools.routes();
  lock.unlock();
  const auto route =
      std::find_if(routes->rbegin(), routes->rend(), [&](const PoolRoute& route) { return route.filter(stream); });
  if (route != routes->rend()) {
    request.pool = route->pool;
  }
}

/// A block of at least request.size that is in no free list. Drops and retakes the mutex.
Block* CachingAllocator::allocate_from_plugin(const Request& request, Lock& lock) {
  if (!loans_.empty()) {
    lock.unlock();
    loans_.collect();
    lock.lock();
    if (Block* block = blocks_.take(request)) {
      return block;
    }
  }
  segments_.collect_garbage(lock);
  Refusal refusal;
  if (Block* block = segments_.request(request, refusal, lock)) {
    return block;
  }
  ++state_.stats.num_alloc_retries;
  if (Block* block = recover(request, refusal, lock)) {
    return block;
  }
  throw_out_of_memory(request, refusal, lock);
}

/// The plugin is full: wait for pending blocks, give back what is cached, ask again.
Block* CachingAllocator::recover(const Request& request, Refusal& refusal, Lock& lock) {
  lock.unlock();
  pending_.process(true);
  lock.lock();
  if (Block* block = blocks_.take(request)) {
    return block;
  }
  if (segments_.release_oversize(request, lock)) {
    if (Block* block = segments_.request(request, refusal, lock)) {
      return block;
    }
  }
  segments_.release_cached(lock);
  if (Block* block = blocks_.take(request)) {
    return block; // freed by another thread in the meantime
  }
  if (Block* block = segments_.request(request, refusal, lock)) {
    return block;
  }
  const bool others_released = segments_.wait_for_releases(lock);
  if (others_released) {
    if (Block* block = blocks_.take(request)) {
      return block;
    }
  }
  // Segments and pages are larger than what one request needs; the last resort is no larger than that.
  return others_released || state_.policy.can_do_with_less(request.size)
             ? segments_.request_least(request, refusal, lock)
             : nullptr;
}

void CachingAllocator::throw_out_of_memory(const Request& request, const Refusal& refusal, Lock& lock) {
  ++state_.stats.num_ooms;
  const auto held = totals();
  OutOfMemoryReport report;
  report.module = state_.api.name();
  report.device = state_.name;
  report.requested = request.requested;
  report.allocated = held.allocated;
  report.reserved = held.reserved;
  report.private_pools = static_cast<std::size_t>(state_.stats.private_pools_reserved());
  report.limit = segments_.limit();
  report.limit_hit = refusal.limit_hit;
  if (request.requested > state_.policy.largest_request() &&
      state_.api.properties(state_.device).max_allocation_bytes) {
    report.largest_request = state_.policy.largest_request();
  }
  report.plugin_text = refusal.plugin_text;
  const auto observers = observers_;
  lock.unlock();
  std::size_t free = 0;
  try {
    std::tie(free, report.device_total) = segments_.memory_info();
    report.device_free = free;      // said with the total, if that is known
  } catch (const std::exception&) { // the error at hand matters more
  }
  lock.lock();
  if (recorder_.enabled()) {
    recorder_.record(TraceAction::kOutOfMemory, reinterpret_cast<const void*>(free), request.requested,
                     blocks_.pool_for(request), request.context);
  }
  lock.unlock();
  for (const auto& observer : observers) {
    observer(state_.device, request.requested, report.device_total, free);
  }
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(request.requested), held.allocated, held.reserved,
                                   c10::Device(c10::DeviceType::PrivateUse1, state_.device));
  TORCH_CHECK_WITH(OutOfMemoryError, false, out_of_memory_text(report));
}

// ---- free ----

bool CachingAllocator::free(void* ptr) noexcept {
  if (C10_UNLIKELY(state_.api.in_bad_fork())) {
    return true; // a thread that does not exist here may have held the mutex
  }
  if (C10_UNLIKELY(recorder_.enabled())) {
    ContextPtr context;
    try {
      context = recorder_.gather_context(RecordContext::kAll);
    } catch (...) { // a free without its stack is still a free
    }
    const Lock lock(state_.mutex);
    if (const Block* const block = blocks_.find_allocated(ptr)) {
      recorder_.record(TraceAction::kFreeRequested, ptr, block->size, *block->pool,
                       context ? std::move(context) : block->context);
    }
  }
  Lock lock(state_.mutex);
  Block* const block = blocks_.find_allocated(ptr);
  if (C10_UNLIKELY(!block)) {
    return false;
  }
  const auto change = -static_cast<int64_t>(block->size);
  blocks_.take_back(block);
  if (C10_UNLIKELY(!block->uses.empty() || block->lent)) {
    retire(block, lock);
  } else {
    blocks_.make_free(block);
  }
  const auto after = totals();
  lock.unlock();
  report_to_profiler(ptr, change, after);
  return true;
}

/// Drops and retakes the mutex.
void CachingAllocator::retire(Block* block, Lock& lock) noexcept {
  block->state = Block::State::kPending;
  const auto uses = std::exchange(block->uses, {});
  lock.unlock();
  pending_.retire(block, uses);
  lock.lock();
}

bool CachingAllocator::record_stream(void* ptr, const StreamRef& stream) {
  const Lock lock(state_.mutex);
  Block* const block = blocks_.find_allocated(ptr);
  if (!block) {
    return false;
  }
  auto& uses = block->uses;
  if (state_.async && !(stream == block->pool->stream) && std::find(uses.begin(), uses.end(), stream) == uses.end()) {
    uses.push_back(stream);
  }
  return true;
}

void CachingAllocator::empty_cache(c10::MempoolId_t pool) {
  loans_.collect();
  pending_.process(true);
  Lock lock(state_.mutex);
  TORCH_CHECK(!blocks_.pools.capturing(),
              "The cache cannot be emptied while a graph is being captured: that waits for the device.");
  if (pool.first != 0 || pool.second != 0) {
    const auto is_in_pool = [&](const Block& block) { return block.pool->owner.id == pool; };
    segments_.release(segments_.free_segments(is_in_pool), lock);
  } else {
    segments_.release_cached(lock);
  }
}

void CachingAllocator::empty_cache_unless_capturing() {
  if (!can_empty_cache()) {
    return;
  }
  loans_.collect();
  pending_.process(true);
  Lock lock(state_.mutex);
  if (!blocks_.pools.capturing()) { // nor since then
    segments_.release_cached(lock);
  }
}

// ---- what callers ask ----

std::pair<std::size_t, std::size_t> CachingAllocator::memory_info() {
  const auto info = segments_.memory_info();
  TORCH_CHECK_NOT_IMPLEMENTED(info.second > 0, state_.name,
                              " does not say how much memory it has, so nothing is known of what is free.");
  return info;
}

bool CachingAllocator::owns(const void* ptr, void** out_base, std::size_t* out_size) const {
  const Lock lock(state_.mutex);
  if (const Block* block = blocks_.find_allocated(ptr)) {
    *out_base = block->ptr;
    *out_size = block->size;
    return true;
  }
  const Segment* segment = segments_.find(ptr);
  const auto* address = static_cast<const char*>(ptr);
  for (const Block* block = segment ? segment->first : nullptr; block; block = block->next) {
    const auto* begin = static_cast<const char*>(block->ptr);
    if (address >= begin && address < begin + block->size) {
      *out_base = block->ptr;
      *out_size = block->size;
      return block->is_active();
    }
  }
  return false;
}

c10::CachingDeviceAllocator::DeviceStats CachingAllocator::statistics() {
  const std::size_t max_split_size = state_.policy.max_split_size();
  const Lock lock(state_.mutex);
  blocks_.merge_loose();
  return state_.stats.to_device_stats(max_split_size);
}

void CachingAllocator::begin_allocate_to_pool(c10::MempoolId_t pool, PoolRoute::Filter filter, bool capturing) {
  TORCH_CHECK(pool.first != 0 || pool.second != 0, "The default memory pool (0, 0) cannot be allocated to explicitly.");
  const Lock lock(state_.mutex);
  blocks_.pools.begin_route({pool, std::move(filter), capturing});
}

CachingAllocator::Totals CachingAllocator::totals() const {
  return {static_cast<std::size_t>(state_.stats.current(Metric::kAllocatedBytes)),
          static_cast<std::size_t>(state_.stats.current(Metric::kReservedBytes))};
}

void CachingAllocator::report_to_profiler(void* ptr, int64_t change, const Totals& totals) const {
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    c10::reportMemoryUsageToProfiler(ptr, change, totals.allocated, totals.reserved,
                                     c10::Device(c10::DeviceType::PrivateUse1, state_.device));
  }
}

} // namespace torch_backend
