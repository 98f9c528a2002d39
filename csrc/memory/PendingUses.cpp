#include "csrc/memory/PendingUses.h"

#include <algorithm>
#include <memory>
#include <thread>

#include <c10/util/Exception.h>

#include "csrc/core/FailedWait.h"

namespace torch_backend {

void PendingUses::retire(Block* block, const std::vector<StreamRef>& uses) {
  {
    const Lock lock(state_.mutex);
    // One count for this function, so that the block is not free before every use is known.
    block->num_pending_events = 1;
    if (blocks_.pools.capturing()) {
      deferred_.push_back({block, uses});
      ++num_pending_;
      state_.set_attention(AllocatorState::kPendingEvents, true);
      return;
    }
  }
  for (const auto& stream : uses) {
    record(block, stream);
  }
  if (block->lent) {
    loans_.hold(block);
  } else {
    const Lock lock(state_.mutex);
    blocks_.finish_use(block);
  }
}

/// Without an event, the use is over when the stream can be waited for.
void PendingUses::record(Block* block, const StreamRef& stream) noexcept {
  try {
    const auto event = events_.record(stream);
    const Lock lock(state_.mutex);
    auto queue =
        std::find_if(queues_.begin(), queues_.end(), [&](const auto& queue) { return queue.stream == stream; });
    if (queue == queues_.end()) {
      queue = queues_.insert(queues_.end(), {stream, {}});
    }
    queue->uses.push_back({event, block});
    ++block->num_pending_events;
    ++num_pending_;
    state_.set_attention(AllocatorState::kPendingEvents, true);
  } catch (const c10::Error&) {
    {
      const Lock lock(state_.mutex);
      ++block->num_pending_events;
    }
    const std::shared_ptr<void> use(block, [this](void* used) {
      const Lock lock(state_.mutex);
      blocks_.finish_use(static_cast<Block*>(used));
    });
    release_when_over(state_.api, stream.device < 0 ? state_.device : stream.device, stream.handle, use);
  }
}

void PendingUses::retire_deferred() {
  std::vector<DeferredFree> deferred;
  {
    const Lock lock(state_.mutex);
    deferred.swap(deferred_);
    num_pending_ -= deferred.size();
  }
  for (const auto& entry : deferred) {
    retire(entry.block, entry.uses);
  }
}

/// The failure goes to the caller; that of a query only the first time, or every allocation would fail for as long as
/// the event does. See Note [Failed waits].
bool PendingUses::is_complete(Use& use, bool wait, std::exception_ptr* out_error) noexcept {
  const auto& event = use.event;
  std::exception_ptr reported;
  bool over = true;
  if (!wait) {
    const auto query = [&] { return state_.api.event_query(event.device, event.handle); };
    over = is_over(state_.api, event.device, query, &reported);
  } else {
    try {
      state_.api.event_synchronize(event.device, event.handle);
    } catch (...) {
      reported = std::current_exception();
      over = wait_until_over(state_.api, event.device, event.handle);
    }
  }
  if (reported) {
    *out_error = wait || !use.failed ? reported : *out_error;
    use.failed = true;
  }
  return over;
}

void PendingUses::process(bool wait) {
  Lock lock(state_.mutex);
  if (blocks_.pools.capturing()) {
    return;
  }
  if (!deferred_.empty()) {
    lock.unlock();
    retire_deferred();
    lock.lock();
  }
  if (wait) {
    ++state_.stats.num_sync_all_streams;
  }
  std::exception_ptr error;
  // By index: while the mutex is dropped other threads add queues. They are never removed.
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    while (!queues_[i].uses.empty()) {
      Use use = queues_[i].uses.front();
      queues_[i].uses.pop_front();
      ++num_looked_at_;
      lock.unlock();
      const bool complete = is_complete(use, wait, &error);
      if (complete) {
        events_.give_back(use.event);
      }
      lock.lock();
      --num_looked_at_;
      if (!complete) {
        queues_[i].uses.push_front(use);
        break; // later events of this stream are not complete either
      }
      --num_pending_;
      blocks_.finish_use(use.block);
    }
  }
  state_.set_attention(AllocatorState::kPendingEvents, num_pending_ > 0);
  // Events that other threads are just looking at would be missed: give them the time for a query.
  for (int i = 0; wait && num_looked_at_ > 0 && i < 1000; ++i) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  lock.unlock();
  if (error) {
    std::rethrow_exception(error);
  }
}

} // namespace torch_backend
