// Memory that other processes use as well. See Note [Lending memory to other processes].
#pragma once

#include <vector>

#include "csrc/memory/AllocatorState.h"
#include "csrc/memory/BlockCache.h"
#include "csrc/memory/Segments.h"

namespace torch_backend {

/// What the allocator of one device has lent. Not under the mutex: asks the plugin, and the system about every block.
class Loans {
 public:
  Loans(AllocatorState& state, BlockCache& blocks, Segments& segments)
      : state_(state), blocks_(blocks), segments_(segments) {}

  /// See CachingAllocator.
  void export_memory(void* ptr, tb_ipc_handle* out_segment, uint64_t* out_offset);
  /// Keep a freed block until it has come back. That counts as one of its pending events.
  void hold(Block* block);
  void collect();
  /// Under the mutex.
  bool empty() const {
    return held_.empty();
  }

 private:
  AllocatorState& state_;
  BlockCache& blocks_;
  Segments& segments_;
  std::vector<Block*> held_; // freed, and lent when last looked at
};

} // namespace torch_backend
