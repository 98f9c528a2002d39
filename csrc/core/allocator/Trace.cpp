#include "csrc/core/allocator/Trace.h"

#include <algorithm>
#include <array>

#include <c10/util/Exception.h>

namespace torch_backend {
namespace {

// In the order of TraceAction.
constexpr std::array<const char*, 7> kNames = {
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "snapshot", "oom"};

} // namespace

const char* trace_action_name(TraceAction action) {
  return kNames[static_cast<std::size_t>(action)];
}

TraceAction parse_trace_action(const std::string& name) {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  TORCH_CHECK_VALUE(found != kNames.end(), "'", name, "' is not an action of the memory history. Actions are alloc, ",
                    "free_requested, free_completed, segment_alloc, segment_free, snapshot and oom.");
  return static_cast<TraceAction>(found - kNames.begin());
}

void TraceRing::set_capacity(std::size_t capacity) {
  auto kept = entries();
  capacity_ = std::max<std::size_t>(capacity, 1);
  if (kept.size() > capacity_) {
    kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(capacity_));
  }
  ring_ = std::move(kept);
  oldest_ = 0;
}

void TraceRing::set_skipped(const std::vector<TraceAction>& skip) {
  skip_mask_ = 0;
  for (const auto action : skip) {
    skip_mask_ |= uint32_t{1} << static_cast<unsigned>(action);
  }
}

void TraceRing::clear() {
  ring_.clear();
  oldest_ = 0;
}

void TraceRing::add(TraceEntry entry) {
  if (skips(entry.action)) {
    return;
  }
  if (ring_.size() < capacity_) {
    ring_.push_back(std::move(entry));
    return;
  }
  ring_[oldest_] = std::move(entry);
  oldest_ = (oldest_ + 1) % capacity_;
}

std::vector<TraceEntry> TraceRing::entries() const {
  std::vector<TraceEntry> ordered;
  ordered.reserve(ring_.size());
  for (std::size_t i = 0; i < ring_.size(); ++i) {
    ordered.push_back(ring_[(oldest_ + i) % ring_.size()]);
  }
  return ordered;
}

} // namespace torch_backend
