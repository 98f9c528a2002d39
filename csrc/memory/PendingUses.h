// Blocks that were freed while another stream may still use them.
#pragma once

#include <deque>
#include <exception>
#include <vector>

#include "csrc/memory/AllocatorState.h"
#include "csrc/memory/BlockCache.h"
#include "csrc/memory/EventPool.h"
#include "csrc/memory/Loans.h"

namespace torch_backend {

/// Uses that record_stream named, each with an event. Calls the plugin, so no function may be called under the mutex.
class PendingUses {
 public:
  PendingUses(AllocatorState& state, BlockCache& blocks, Loans& loans)
      : state_(state), blocks_(blocks), loans_(loans), events_(state.api, state.device) {}

  /// `block` was freed, and these streams, or other processes, used it. It is kPending, so nobody else touches it.
  void retire(Block* block, const std::vector<StreamRef>& uses);
  /// Frees the blocks whose events are complete; waits for all events if `wait`. Throws what the plugin reports.
  void process(bool wait);

 private:
  struct Use {
    RecordedEvent event;
    Block* block;
    bool failed = false; // to be waited for or queried, at least once
  };
  struct Queue {
    StreamRef stream;
    std::deque<Use> uses; // oldest first
  };
  struct DeferredFree {
    Block* block;
    std::vector<StreamRef> uses;
  };

  void record(Block* block, const StreamRef& stream) noexcept;
  void retire_deferred();
  bool is_complete(Use& use, bool wait, std::exception_ptr* out_error) noexcept;

  AllocatorState& state_;
  BlockCache& blocks_;
  Loans& loans_;
  EventPool events_;                   // has its own lock
  std::vector<Queue> queues_;          // one per stream that used another stream's memory
  std::size_t num_pending_ = 0;        // blocks of queues_ and deferred_, counted once per event
  int num_looked_at_ = 0;              // entries some thread has taken from queues_ to query them
  std::vector<DeferredFree> deferred_; // freed during a capture, when no event may be recorded
};

} // namespace torch_backend
