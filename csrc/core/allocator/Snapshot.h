// A copy of what the allocator holds, in plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/core/allocator/Block.h"
#include "csrc/core/allocator/Trace.h"

namespace torch_backend {

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
  c10::MempoolId_t pool{0, 0};
  std::vector<BlockSnapshot> blocks; // in address order
  ContextPtr context;
};

struct AllocatorSnapshot {
  std::vector<SegmentSnapshot> segments; // in address order
  std::vector<TraceEntry> trace;         // oldest first
};

} // namespace torch_backend
