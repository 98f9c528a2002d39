// What the allocator did and what it holds, for memory_viz.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/memory/AllocatorState.h"
#include "csrc/memory/Block.h"

namespace torch_backend {

/// Names and meaning are those of torch.cuda.memory._snapshot.
enum class TraceAction : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted, // may come later than the request: see record_stream
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap, // of pages of an expandable segment
  kSegmentUnmap,
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

/// A copy of what the allocator holds, in plain values.
struct BlockSnapshot {
  uintptr_t address = 0;
  std::size_t size = 0;
  std::size_t requested_size = 0; // 0 unless allocated or pending
  Block::State state = Block::State::kFree;
  ContextPtr context;
};

struct SegmentSnapshot {
  c10::DeviceIndex device = 0;
  uintptr_t address = 0;
  std::size_t total_size = 0;
  std::size_t allocated_size = 0;
  std::size_t active_size = 0; // allocated, or freed and waiting for a stream
  std::size_t requested_size = 0;
  c10::StreamId stream = 0;
  bool is_small = false;
  bool is_expandable = false;
  c10::MempoolId_t pool{0, 0};
  std::vector<BlockSnapshot> blocks; // in address order
  ContextPtr context;
};

struct AllocatorSnapshot {
  std::vector<SegmentSnapshot> segments; // in address order
  std::vector<TraceEntry> trace;         // oldest first
};

/// Keeps the last HistoryOptions::max_entries actions.
class Recorder {
 public:
  explicit Recorder(AllocatorState& state) : state_(state) {}

  bool enabled() const {
    return state_.attention.load(std::memory_order_relaxed) & AllocatorState::kHistory;
  }
  void configure(const HistoryOptions& options);
  /// Not under the mutex. NULL unless stacks are gathered for `at_least` this.
  ContextPtr gather_context(RecordContext at_least) const;

  // ---- under the mutex ----

  /// No-op unless enabled.
  void record(TraceAction action, const void* ptr, std::size_t size, const BlockPool& pool, ContextPtr context);
  AllocatorSnapshot snapshot(const std::map<const void*, Segment>& segments, std::optional<c10::MempoolId_t> pool,
                             bool include_trace);

 private:
  void add(TraceEntry entry);
  /// Oldest first.
  std::vector<TraceEntry> entries() const;

  AllocatorState& state_;
  std::atomic<CreateContextFn> create_context_{nullptr};
  std::atomic<RecordContext> record_context_{RecordContext::kNever};
  std::size_t capacity_ = 1;
  std::size_t oldest_ = 0; // index of the oldest entry once the ring is full
  uint32_t skip_mask_ = 0; // of actions
  std::vector<TraceEntry> ring_;
};

} // namespace torch_backend
