#include "csrc/memory/Recorder.h"

#include <algorithm>
#include <array>
#include <chrono>

#include <c10/util/Exception.h>

#include "csrc/memory/MemoryPool.h"

namespace torch_backend {
namespace {

// In the order of TraceAction.
constexpr std::array<const char*, 9> kNames = {"alloc",         "free_requested", "free_completed",
                                               "segment_alloc", "segment_free",   "segment_map",
                                               "segment_unmap", "snapshot",       "oom"};

int64_t now_us() {
  using std::chrono::duration_cast;
  return duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

} // namespace

const char* trace_action_name(TraceAction action) {
  return kNames[static_cast<std::size_t>(action)];
}

TraceAction parse_trace_action(const std::string& name) {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  TORCH_CHECK_VALUE(
      found != kNames.end(), "'", name, "' is not an action of the memory history. Actions are alloc, ",
      "free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, snapshot and oom.");
  return static_cast<TraceAction>(found - kNames.begin());
}

void Recorder::configure(const HistoryOptions& options) {
  TORCH_CHECK_VALUE(options.when == RecordContext::kNever || options.create_context,
                    "Recording stacks needs a function that gathers them.");
  const Lock lock(state_.mutex);
  create_context_.store(options.create_context, std::memory_order_relaxed);
  record_context_.store(options.enabled ? options.when : RecordContext::kNever, std::memory_order_relaxed);
  capacity_ = std::max<std::size_t>(options.max_entries, 1);
  auto kept = options.clear || !options.enabled ? std::vector<TraceEntry>{} : entries();
  if (kept.size() > capacity_) {
    kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(capacity_));
  }
  ring_ = std::move(kept);
  oldest_ = 0;
  skip_mask_ = 0;
  for (const auto action : options.skip) {
    skip_mask_ |= uint32_t{1} << static_cast<unsigned>(action);
  }
  state_.set_attention(AllocatorState::kHistory, options.enabled);
}

ContextPtr Recorder::gather_context(RecordContext at_least) const {
  if (record_context_.load(std::memory_order_relaxed) < at_least) {
    return nullptr;
  }
  const auto create = create_context_.load(std::memory_order_relaxed);
  return create ? create() : nullptr;
}

void Recorder::record(TraceAction action, const void* ptr, std::size_t size, const BlockPool& pool,
                      ContextPtr context) {
  if (!enabled()) {
    return;
  }
  if (record_context_.load(std::memory_order_relaxed) < RecordContext::kAlloc) {
    context.reset();
  }
  add({action, reinterpret_cast<uintptr_t>(ptr), size, pool.stream.id, pool.owner.id, now_us(), std::move(context)});
}

void Recorder::add(TraceEntry entry) {
  if (skip_mask_ >> static_cast<unsigned>(entry.action) & 1) {
    return;
  }
  if (ring_.size() < capacity_) {
    ring_.push_back(std::move(entry));
    return;
  }
  ring_[oldest_] = std::move(entry);
  oldest_ = (oldest_ + 1) % capacity_;
}

std::vector<TraceEntry> Recorder::entries() const {
  std::vector<TraceEntry> ordered(ring_);
  std::rotate(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(oldest_), ordered.end());
  return ordered;
}

AllocatorSnapshot Recorder::snapshot(const std::map<const void*, Segment>& segments,
                                     std::optional<c10::MempoolId_t> pool, bool include_trace) {
  AllocatorSnapshot result;
  for (const auto& [base, segment] : segments) {
    const auto& owner = segment.pool->owner;
    if (pool && owner.id != *pool) {
      continue;
    }
    auto& copy = result.segments.emplace_back();
    copy.device = state_.device;
    copy.address = reinterpret_cast<uintptr_t>(base);
    copy.total_size = segment.size;
    copy.stream = segment.pool->stream.id;
    copy.is_small = segment.pool->small;
    copy.is_expandable = segment.reservation != nullptr;
    copy.pool = owner.id;
    copy.context = segment.context;
    for (const Block* block = segment.first; block; block = block->next) {
      copy.blocks.push_back(
          {reinterpret_cast<uintptr_t>(block->ptr), block->size, block->requested, block->state, block->context});
      copy.allocated_size += block->state == Block::State::kAllocated ? block->size : 0;
      copy.active_size += block->is_active() ? block->size : 0;
      copy.requested_size += block->requested;
    }
  }
  if (include_trace) {
    if (enabled()) {
      const auto reserved = static_cast<std::size_t>(state_.stats.current(Metric::kReservedBytes));
      add({TraceAction::kSnapshot, 0, reserved, 0, {0, 0}, now_us(), nullptr});
    }
    result.trace = entries();
  }
  return result;
}

} // namespace torch_backend
