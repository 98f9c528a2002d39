// The way to a cache hit and back, and what callers ask about the allocator. See Pending.cpp for blocks that wait for
// streams, Segments.cpp for the way to the plugin.
#include "csrc/core/allocator/CachingAllocator.h"

#include <algorithm>
#include <chrono>

#include <c10/util/Exception.h>

#include "csrc/core/Status.h"

namespace torch_backend {
namespace {

// Larger requests fail at once; adding and rounding sizes below it cannot overflow.
constexpr std::size_t kLargestRequest = std::size_t{1} << 62;

int64_t now_us() {
  using std::chrono::duration_cast;
  return duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

} // namespace

CachingAllocator::CachingAllocator(DeviceApi& api, c10::DeviceIndex device)
    : api_(api),
      device_(device),
      async_(api.async()),
      stream_ordered_(api.has_capability(device, TB_CAP_STREAM_ALLOC)),
      policy_(api.properties(device).allocation_granularity_bytes),
      events_(api, device),
      routes_(std::make_shared<const Routes>()) {}

CachingAllocator::~CachingAllocator() {
  // A wait that fails reports an error of earlier work, and the next one succeeds.
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      process_events(true);
      Lock lock(mutex_);
      auto segments = detach_cached([](const MemoryPool&) { return true; });
      lock.unlock();
      free_segments(std::move(segments));
      return;
    } catch (const c10::Error& error) {
      if (!api_.is_lost(device_)) {
        TORCH_WARN("While giving back the memory of ", api_.name(), ":", static_cast<int>(device_), ": ",
                   error.what_without_backtrace());
      }
    }
  }
}

// ---- allocate ----

void* CachingAllocator::allocate(std::size_t size, const StreamRef& stream) {
  if (C10_UNLIKELY(refuses_work())) {
    refuse();
  }
  Request request{size, size, async_ ? stream : StreamRef{}, false, {0, 0}, nullptr};
  if (C10_UNLIKELY(attention_.load(std::memory_order_relaxed) != 0)) {
    prepare(request, stream);
  }
  Lock lock(mutex_);
  if (C10_UNLIKELY(size > kLargestRequest)) {
    throw_out_of_memory(request, Refusal{}, lock);
  }
  request.size = policy_.block_size(size);
  request.small = request.size <= kSmallSize;
  Block* block = take(pool_for(request), request.size);
  if (C10_UNLIKELY(!block)) {
    block = allocate_from_plugin(request, lock);
  }
  hand_out(block, request);
  void* const ptr = block->ptr;
  const auto change = static_cast<int64_t>(block->size);
  const auto after = totals();
  lock.unlock();
  report_to_profiler(ptr, change, after);
  return ptr;
}

/// The plugin says why, in the words of every other call.
void CachingAllocator::refuse() {
  api_.check_usable(device_, "memory_allocate");
  throw_status(TB_STATUS_DEVICE_LOST, api_.name(), "memory_allocate", device_);
}

void CachingAllocator::prepare(Request& request, const StreamRef& stream) {
  const uint32_t attention = attention_.load(std::memory_order_relaxed);
  request.context = gather_context(RecordContext::kState);
  if (attention & kPendingEvents) {
    process_events(false);
  }
  if (!(attention & kRoutes)) {
    return;
  }
  std::shared_ptr<const Routes> routes;
  {
    const Lock lock(mutex_);
    routes = routes_;
  }
  const auto route =
      std::find_if(routes->rbegin(), routes->rend(), [&](const PoolRoute& route) { return route.filter(stream); });
  if (route != routes->rend()) {
    request.pool = route->pool;
  }
}

BlockPool& CachingAllocator::pool_for(const Request& request) {
  if (C10_UNLIKELY(request.pool.first != 0 || request.pool.second != 0)) {
    // A pool may have been released since the request was routed.
    const auto found = private_pools_.find(request.pool);
    if (found != private_pools_.end()) {
      return found->second->of(request.stream, request.small);
    }
  }
  return default_pool_.of(request.stream, request.small);
}

/// A free block for `size`, out of the free list; NULL if there is none.
Block* CachingAllocator::take(BlockPool& pool, std::size_t size) {
  ++pool.searches;
  Block* block = pool.free.best_fit(size);
  if (!block || (!pool.small && block->size != size && !policy_.fits_unsplit_limits(size, block->size))) {
    return nullptr;
  }
  pool.free.remove(block);
  return block;
}

void CachingAllocator::hand_out(Block* block, Request& request) {
  const bool small = block->pool->small;
  const bool was_split = block->is_split();
  const std::size_t remaining = block->size - request.size;
  if (remaining > 0 && policy_.should_split(request.size, remaining, small)) {
    split(block, request.size);
    if (was_split) {
      stats_.decrease(Metric::kInactiveSplitBytes, small, request.size);
    } else {
      stats_.increase(Metric::kInactiveSplit, small, 1);
      stats_.increase(Metric::kInactiveSplitBytes, small, remaining);
    }
  } else if (was_split) {
    stats_.decrease(Metric::kInactiveSplit, small, 1);
    stats_.decrease(Metric::kInactiveSplitBytes, small, block->size);
  }
  block->state = Block::State::kAllocated;
  block->requested = request.requested;
  stats_.increase(Metric::kAllocations, small, 1);
  stats_.increase(Metric::kAllocatedBytes, small, block->size);
  stats_.increase(Metric::kRequestedBytes, small, block->requested);
  stats_.increase(Metric::kActive, small, 1);
  stats_.increase(Metric::kActiveBytes, small, block->size);
  block->oversize = !small && block->size >= policy_.max_split_size();
  if (C10_UNLIKELY(block->oversize)) {
    stats_.oversize_allocations.increase(1);
  }
  if (C10_UNLIKELY(history_enabled())) {
    block->context = std::move(request.context);
    trace(TraceAction::kAlloc, block->ptr, block->size, *block->pool, block->context);
  }
}

/// `block` keeps its first `size` bytes; the rest becomes a free block.
void CachingAllocator::split(Block* block, std::size_t size) {
  Block* rest = arena_.acquire();
  rest->ptr = static_cast<char*>(block->ptr) + size;
  rest->size = block->size - size;
  rest->pool = block->pool;
  rest->freed_at = block->freed_at;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next) {
    rest->next->prev = rest;
  }
  block->next = rest;
  block->size = size;
  table_.insert(rest);
  rest->pool->free.insert(rest);
}

// ---- free ----

bool CachingAllocator::free(void* ptr) noexcept {
  if (C10_UNLIKELY(api_.in_bad_fork())) {
    return true; // a thread that does not exist here may have held the mutex
  }
  ContextPtr context;
  if (C10_UNLIKELY(history_enabled())) {
    try {
      context = gather_context(RecordContext::kAll);
    } catch (...) { // a free without its stack is still a free
    }
  }
  Lock lock(mutex_);
  Block* const block = table_.find(ptr);
  if (C10_UNLIKELY(!block || block->state != Block::State::kAllocated)) {
    return false;
  }
  const bool small = block->pool->small;
  const auto change = -static_cast<int64_t>(block->size);
  stats_.decrease(Metric::kAllocations, small, 1);
  stats_.decrease(Metric::kAllocatedBytes, small, block->size);
  if (C10_UNLIKELY(block->oversize)) {
    stats_.oversize_allocations.decrease(1);
  }
  if (C10_UNLIKELY(history_enabled())) {
    trace(TraceAction::kFreeRequested, ptr, block->size, *block->pool, context ? std::move(context) : block->context);
  }
  std::vector<StreamRef> uses;
  const bool is_unused = block->uses.empty() && !block->lent;
  if (C10_LIKELY(is_unused)) {
    make_free(block);
  } else {
    block->state = Block::State::kPending;
    uses.swap(block->uses);
  }
  const auto after = totals();
  lock.unlock();
  if (C10_UNLIKELY(!is_unused)) {
    retire(block, uses);
  }
  report_to_profiler(ptr, change, after);
  return true;
}

void CachingAllocator::make_free(Block* block) {
  const bool small = block->pool->small;
  stats_.decrease(Metric::kActive, small, 1);
  stats_.decrease(Metric::kActiveBytes, small, block->size);
  stats_.decrease(Metric::kRequestedBytes, small, block->requested);
  if (C10_UNLIKELY(history_enabled())) {
    trace(TraceAction::kFreeCompleted, block->ptr, block->size, *block->pool, block->context);
  }
  if (C10_UNLIKELY(block->context != nullptr)) {
    block->context.reset();
  }
  block->state = Block::State::kFree;
  block->requested = 0;
  if (block->is_split()) {
    block = merge_with_free_neighbours(block);
  }
  block->freed_at = block->pool->searches;
  block->pool->free.insert(block);
}

/// The block that covers all of it.
Block* CachingAllocator::merge_with_free_neighbours(Block* block) {
  BlockPool& pool = *block->pool;
  int64_t pieces = 0; // how the number of free pieces of split segments changes, and their bytes
  int64_t bytes = 0;
  const auto absorb_next = [&](Block* left, Block* gone, Block* free_one) {
    pool.free.remove(free_one);
    pieces -= 1;
    bytes -= static_cast<int64_t>(free_one->size);
    table_.erase(gone->ptr);
    left->size += gone->size;
    left->next = gone->next;
    if (left->next) {
      left->next->prev = left;
    }
    arena_.recycle(gone);
    return left;
  };
  if (Block* next = block->next; next && next->state == Block::State::kFree) {
    block = absorb_next(block, next, next);
  }
  if (Block* prev = block->prev; prev && prev->state == Block::State::kFree) {
    block = absorb_next(prev, block, prev);
  }
  if (block->is_split()) {
    pieces += 1;
    bytes += static_cast<int64_t>(block->size);
  }
  stats_.change(Metric::kInactiveSplit, pool.small, pieces);
  stats_.change(Metric::kInactiveSplitBytes, pool.small, bytes);
  return block;
}

// ---- what callers ask ----

bool CachingAllocator::record_stream(void* ptr, const StreamRef& stream) {
  const Lock lock(mutex_);
  Block* block = table_.find(ptr);
  if (!block || block->state != Block::State::kAllocated) {
    return false;
  }
  auto& uses = block->uses;
  if (async_ && !(stream == block->pool->stream) && std::find(uses.begin(), uses.end(), stream) == uses.end()) {
    uses.push_back(stream);
  }
  return true;
}

bool CachingAllocator::owns(const void* ptr, void** out_base, std::size_t* out_size) const {
  const Lock lock(mutex_);
  auto segment = segments_.upper_bound(ptr);
  if (segment == segments_.begin()) {
    return false;
  }
  --segment;
  const auto* address = static_cast<const char*>(ptr);
  for (const Block* block = segment->second.first; block; block = block->next) {
    const auto* begin = static_cast<const char*>(block->ptr);
    if (address >= begin && address < begin + block->size) {
      *out_base = block->ptr;
      *out_size = block->size;
      return block->state != Block::State::kFree;
    }
  }
  return false;
}

std::size_t CachingAllocator::total_memory() {
  if (const std::size_t total = api_.properties(device_).total_memory_bytes) {
    return total;
  }
  uint64_t free = 0;
  uint64_t total = 0;
  return api_.memory_info(device_, &free, &total) == TB_STATUS_OK ? total : 0;
}

std::pair<std::size_t, std::size_t> CachingAllocator::memory_info() {
  uint64_t free = 0;
  uint64_t total = 0;
  if (api_.memory_info(device_, &free, &total) == TB_STATUS_OK) {
    return {free, total};
  }
  total = api_.properties(device_).total_memory_bytes;
  const Lock lock(mutex_);
  const auto held = static_cast<uint64_t>(stats_.current(Metric::kReservedBytes));
  return {total - std::min(held, total), total};
}

void CachingAllocator::set_memory_fraction(double fraction) {
  TORCH_CHECK_VALUE(fraction >= 0.0 && fraction <= 1.0, "The memory fraction must lie between 0 and 1, got ", fraction,
                    ".");
  const std::size_t total = total_memory();
  TORCH_CHECK(total > 0 || fraction == 1.0, api_.name(), ":", static_cast<int>(device_),
              " does not say how much memory it has, so no fraction of it can be set.");
  const Lock lock(mutex_);
  fraction_ = fraction;
  limit_ =
      fraction == 1.0 ? std::nullopt : std::optional(static_cast<std::size_t>(fraction * static_cast<double>(total)));
}

double CachingAllocator::memory_fraction() const {
  const Lock lock(mutex_);
  return fraction_;
}

c10::CachingDeviceAllocator::DeviceStats CachingAllocator::statistics() const {
  const std::size_t max_split_size = policy_.max_split_size();
  const Lock lock(mutex_);
  return stats_.to_device_stats(max_split_size);
}

void CachingAllocator::reset_accumulated_statistics() {
  const Lock lock(mutex_);
  stats_.reset_accumulated();
}

void CachingAllocator::reset_peak_statistics() {
  const Lock lock(mutex_);
  stats_.reset_peak();
}

void CachingAllocator::add_out_of_memory_observer(OutOfMemoryObserver observer) {
  const Lock lock(mutex_);
  observers_.push_back(std::move(observer));
}

CachingAllocator::Totals CachingAllocator::totals() const {
  return {static_cast<std::size_t>(stats_.current(Metric::kAllocatedBytes)),
          static_cast<std::size_t>(stats_.current(Metric::kReservedBytes))};
}

void CachingAllocator::report_to_profiler(void* ptr, int64_t change, const Totals& totals) const {
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    c10::reportMemoryUsageToProfiler(ptr, change, totals.allocated, totals.reserved,
                                     c10::Device(c10::DeviceType::PrivateUse1, device_));
  }
}

// ---- private pools ----

void CachingAllocator::retain_pool(c10::MempoolId_t pool) {
  const Lock lock(mutex_);
  auto& slot = private_pools_[pool];
  if (!slot) {
    slot = std::make_unique<MemoryPool>(pool);
  }
  ++slot->use_count;
}

void CachingAllocator::release_pool(c10::MempoolId_t pool) {
  const Lock lock(mutex_);
  const auto found = private_pools_.find(pool);
  TORCH_CHECK(found != private_pools_.end() && found->second->use_count > 0, "Memory pool (", pool.first, ", ",
              pool.second, ") is not in use on ", api_.name(), ":", static_cast<int>(device_),
              ": it was released more often than it was retained.");
  --found->second->use_count;
  erase_pool_if_unused(pool);
}

int CachingAllocator::pool_use_count(c10::MempoolId_t pool) const {
  const Lock lock(mutex_);
  const auto found = private_pools_.find(pool);
  return found == private_pools_.end() ? 0 : found->second->use_count;
}

void CachingAllocator::erase_pool_if_unused(c10::MempoolId_t pool) {
  const auto found = private_pools_.find(pool);
  if (found != private_pools_.end() && found->second->use_count == 0 && found->second->num_segments == 0) {
    private_pools_.erase(found);
  }
}

void CachingAllocator::begin_allocate_to_pool(c10::MempoolId_t pool, PoolRoute::Filter filter, bool capturing) {
  TORCH_CHECK(pool.first != 0 || pool.second != 0, "The default memory pool (0, 0) cannot be allocated to explicitly.");
  retain_pool(pool);
  const Lock lock(mutex_);
  auto routes = std::make_shared<Routes>(*routes_);
  routes->push_back({pool, std::move(filter), capturing});
  routes_ = std::move(routes);
  captures_ += capturing;
  set_attention(kRoutes, true);
}

void CachingAllocator::end_allocate_to_pool(c10::MempoolId_t pool) {
  const Lock lock(mutex_);
  auto routes = std::make_shared<Routes>(*routes_);
  const auto last =
      std::find_if(routes->rbegin(), routes->rend(), [&](const auto& route) { return route.pool == pool; });
  TORCH_CHECK(last != routes->rend(), "Nothing is being allocated to memory pool (", pool.first, ", ", pool.second,
              ") on ", api_.name(), ":", static_cast<int>(device_), ".");
  captures_ -= last->capturing;
  routes->erase(std::next(last).base());
  set_attention(kRoutes, !routes->empty());
  routes_ = std::move(routes);
}

// ---- history ----

void CachingAllocator::set_attention(Attention bit, bool on) {
  if (on) {
    attention_.fetch_or(bit, std::memory_order_relaxed);
  } else {
    attention_.fetch_and(~static_cast<uint32_t>(bit), std::memory_order_relaxed);
  }
}

ContextPtr CachingAllocator::gather_context(RecordContext at_least) const {
  if (record_context_.load(std::memory_order_relaxed) < at_least) {
    return nullptr;
  }
  const auto create = create_context_.load(std::memory_order_relaxed);
  return create ? create() : nullptr;
}

void CachingAllocator::trace(TraceAction action, const void* ptr, std::size_t size, const BlockPool& pool,
                             ContextPtr context) {
  if (!history_enabled()) {
    return;
  }
  if (record_context_.load(std::memory_order_relaxed) < RecordContext::kAlloc) {
    context.reset();
  }
  ring_.add(
      {action, reinterpret_cast<uintptr_t>(ptr), size, pool.stream.id, pool.owner.id, now_us(), std::move(context)});
}

void CachingAllocator::record_history(const HistoryOptions& options) {
  TORCH_CHECK_VALUE(options.when == RecordContext::kNever || options.create_context,
                    "Recording stacks needs a function that gathers them.");
  const Lock lock(mutex_);
  create_context_.store(options.create_context, std::memory_order_relaxed);
  record_context_.store(options.enabled ? options.when : RecordContext::kNever, std::memory_order_relaxed);
  if (options.clear || !options.enabled) {
    ring_.clear();
  }
  ring_.set_capacity(options.max_entries);
  ring_.set_skipped(options.skip);
  set_attention(kHistory, options.enabled);
}

AllocatorSnapshot CachingAllocator::snapshot(std::optional<c10::MempoolId_t> pool, bool include_trace) {
  AllocatorSnapshot result;
  const Lock lock(mutex_);
  for (const auto& [base, segment] : segments_) {
    const auto& owner = segment.pool->owner;
    if (pool && owner.id != *pool) {
      continue;
    }
    auto& copy = result.segments.emplace_back();
    copy.device = device_;
    copy.address = reinterpret_cast<uintptr_t>(base);
    copy.total_size = segment.size;
    copy.stream = segment.pool->stream.id;
    copy.is_small = segment.pool->small;
    copy.pool = owner.id;
    copy.context = segment.context;
    for (const Block* block = segment.first; block; block = block->next) {
      const bool active = block->state != Block::State::kFree;
      copy.blocks.push_back(
          {reinterpret_cast<uintptr_t>(block->ptr), block->size, block->requested, block->state, block->context});
      copy.allocated_size += block->state == Block::State::kAllocated ? block->size : 0;
      copy.active_size += active ? block->size : 0;
      copy.requested_size += block->requested;
    }
  }
  if (include_trace) {
    if (history_enabled()) {
      ring_.add({TraceAction::kSnapshot,
                 0,
                 static_cast<std::size_t>(stats_.current(Metric::kReservedBytes)),
                 0,
                 {0, 0},
                 now_us(),
                 nullptr});
    }
    result.trace = ring_.entries();
  }
  return result;
}

} // namespace torch_backend
