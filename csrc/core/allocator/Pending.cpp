// Blocks that were freed while another stream, or another process, may still use them. See Note [Caching allocator].
#include <algorithm>
#include <thread>

#include <c10/util/Exception.h>

#include "csrc/core/FailedWait.h"
#include "csrc/core/allocator/CachingAllocator.h"
#include "csrc/core/ipc/LoanBook.h"

namespace torch_backend {

/// `block` was freed, and these streams, or other processes, used it. Not under the mutex; the block is kPending, so
/// nobody else touches it.
void CachingAllocator::retire(Block* block, const std::vector<StreamRef>& uses) {
  {
    const Lock lock(mutex_);
    // One count for this function, so that the block is not free before every use is known.
    block->num_pending_events = 1;
    if (captures_ > 0) {
      deferred_.push_back({block, uses});
      ++num_pending_;
      set_attention(kPendingEvents, true);
      return;
    }
  }
  for (const auto& stream : uses) {
    record_use(block, stream);
  }
  if (block->lent) {
    {
      const Lock lock(mutex_);
      lent_.push_back(block);
    }
    collect_lent();
  } else {
    const Lock lock(mutex_);
    finish_use(block);
  }
}

void CachingAllocator::collect_lent() {
  if (api_.in_bad_fork()) {
    return; // the blocks are those of the parent process
  }
  std::vector<Block*> waiting;
  {
    const Lock lock(mutex_);
    waiting.swap(lent_);
  }
  if (waiting.empty()) {
    return;
  }
  // Without the mutex: this asks the system about every block.
  const auto back = std::partition(waiting.begin(), waiting.end(),
                                   [](const Block* block) { return ipc::LoanBook::own().is_lent(block->ptr); });
  const Lock lock(mutex_);
  std::for_each(back, waiting.end(), [this](Block* block) {
    block->lent = false;
    finish_use(block);
  });
  lent_.insert(lent_.end(), waiting.begin(), back);
}

/// Without an event, the use is over when the stream can be waited for.
void CachingAllocator::record_use(Block* block, const StreamRef& stream) noexcept {
  try {
    const auto event = events_.record(stream);
    const Lock lock(mutex_);
    auto queue =
        std::find_if(queues_.begin(), queues_.end(), [&](const auto& queue) { return queue.stream == stream; });
    if (queue == queues_.end()) {
      queue = queues_.insert(queues_.end(), {stream, {}});
    }
    queue->uses.push_back({event, block});
    ++block->num_pending_events;
    ++num_pending_;
    set_attention(kPendingEvents, true);
  } catch (const c10::Error&) {
    {
      const Lock lock(mutex_);
      ++block->num_pending_events;
    }
    const std::shared_ptr<void> use(block, [this](void* used) {
      const Lock lock(mutex_);
      finish_use(static_cast<Block*>(used));
    });
    release_when_over(api_, stream.device < 0 ? device_ : stream.device, stream.handle, use);
  }
}

/// Under the mutex.
void CachingAllocator::finish_use(Block* block) {
  if (--block->num_pending_events == 0) {
    make_free(block);
  }
}

void CachingAllocator::retire_deferred() {
  std::vector<DeferredFree> deferred;
  {
    const Lock lock(mutex_);
    deferred.swap(deferred_);
    num_pending_ -= deferred.size();
  }
  for (const auto& entry : deferred) {
    retire(entry.block, entry.uses);
  }
}

/// Not under the mutex. What fails is asked a second time, see Note [Failed waits]. The failure goes to the caller; that of
/// a query only the first time, or every allocation would fail for as long as the event does.
bool CachingAllocator::is_complete(PendingUse& use, bool wait, std::exception_ptr* out_error) noexcept {
  const auto [event, device] = use.event;
  const auto complete = [&] {
    if (!wait) {
      return api_.event_query(device, event);
    }
    api_.event_synchronize(device, event);
    return true;
  };
  try {
    return complete();
  } catch (...) {
    if (wait || !use.failed) {
      *out_error = std::current_exception();
    }
    use.failed = true;
  }
  if (wait) {
    return wait_until_over(api_, device, event);
  }
  try {
    return api_.is_lost(device) || complete();
  } catch (...) {
    return api_.is_lost(device);
  }
}

void CachingAllocator::process_events(bool wait) {
  Lock lock(mutex_);
  if (captures_ > 0) {
    return;
  }
  if (!deferred_.empty()) {
    lock.unlock();
    retire_deferred();
    lock.lock();
  }
  if (wait) {
    ++stats_.num_sync_all_streams;
  }
  std::exception_ptr error;
  // By index: while the mutex is dropped other threads add queues. They are never removed.
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    while (!queues_[i].uses.empty()) {
      PendingUse use = queues_[i].uses.front();
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
      finish_use(use.block);
    }
  }
  set_attention(kPendingEvents, num_pending_ > 0);
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
