// The history of what the allocator did, for memory_viz.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/core/allocator/Block.h"

namespace torch_backend {

/// Names and meaning are those of torch.cuda.memory._snapshot.
enum class TraceAction : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted, // may come later than the request: see record_stream
  kSegmentAlloc,
  kSegmentFree,
  kSnapshot,
  kOutOfMemory
};
const char* trace_action_name(TraceAction action);
/// Throws ValueError for a name that is not one.
TraceAction parse_trace_action(const std::string& name);

struct TraceEntry {
  TraceAction action;
  uintptr_t address; // kOutOfMemory: bytes the device still has free
  std::size_t size;
  c10::StreamId stream;
  c10::MempoolId_t pool;
  int64_t time_us; // since the epoch
  ContextPtr context;
};

/// When stacks are gathered; each level includes those before it.
enum class RecordContext : uint8_t { kNever, kState, kAlloc, kAll };

struct HistoryOptions {
  bool enabled = false;
  CreateContextFn create_context = nullptr;
  RecordContext when = RecordContext::kNever;
  std::size_t max_entries = 1;
  bool clear = false;
  std::vector<TraceAction> skip{};
};

/// The last `capacity` entries. Guarded by the allocator's mutex.
class TraceRing {
 public:
  /// Keeps the newest entries that still fit.
  void set_capacity(std::size_t capacity);
  void set_skipped(const std::vector<TraceAction>& skip);
  void clear();
  void add(TraceEntry entry);
  bool skips(TraceAction action) const {
    return skip_mask_ >> static_cast<unsigned>(action) & 1;
  }
  /// Oldest first.
  std::vector<TraceEntry> entries() const;

 private:
  std::size_t capacity_ = 1;
  std::size_t oldest_ = 0; // index of the oldest entry once the ring is full
  uint32_t skip_mask_ = 0;
  std::vector<TraceEntry> ring_;
};

} // namespace torch_backend
