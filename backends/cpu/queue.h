// A queue of work that runs one after the other: what stands behind a stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>

#include "result.h"

namespace xcpu {

// What went wrong on a queue. Streams and events share it, so that it is reported once, by whoever waits first.
class pending_failure {
 public:
  explicit pending_failure(result what) : what_(std::move(what)) {}
  bool reported() const {
    return reported_;
  }
  // The failure, the first time; ok afterwards.
  result take() {
    return reported_.exchange(true) ? result() : what_;
  }

 private:
  const result what_;
  std::atomic<bool> reported_{false};
};

// Who runs the work of a queue: its worker thread, which it always has. But waking a thread takes longer than most work.
// So while nobody runs it, a thread that waits for work runs it in the worker's place, up to what it waits for, and one
// that pushes brief work to a queue that is idle has it done at once. In either case one piece runs at a time, in order.
// The worker and those who wait spin for a moment before they sleep.
class queue {
 public:
  using work = std::function<result()>;

  // `seed` makes the injected delays reproducible. The thread is detached and shares ownership: a queue that was closed
  // finishes its work and goes, and one that was not ends with the process, which waits for neither.
  static std::shared_ptr<queue> start(uint32_t seed);

  // Returns the place of the work among all that is pushed, for `wait`.
  uint64_t push(work next);
  // The same for work that takes less time than waking a thread, and waits for nothing: it may be done on return.
  uint64_t push_brief(work next);
  // No more pushes will come.
  void close();

  // Until what has this place is done.
  void wait(uint64_t place);

  // Waits for what was pushed before the call. Then, and if nothing is left to do when queried, returns a failure that
  // nobody has been told of yet.
  result synchronize();
  result query();

  // Of the work done so far; null if there was none. For work on this queue.
  std::shared_ptr<pending_failure> last_failure();

 private:
  using unique_lock = std::unique_lock<std::mutex>;

  explicit queue(uint32_t seed) : random_(seed) {}

  // Also without the mutex, as a hint.
  bool can_run() const {
    return !running_ && num_completed_ != num_pushed_;
  }
  void run_worker();
  bool wait_for_work(unique_lock& lock);
  void leave_to_worker(unique_lock& lock);
  void wait(uint64_t place, unique_lock& lock);
  void run_next(unique_lock& lock);
  void run(work what, unique_lock& lock);
  void complete(result outcome, unique_lock& lock);
  void delay();
  result take_failure();

  std::mutex mutex_; // guards all but random_, which is whose work runs; not held while work runs
  std::condition_variable pushed_, completed_;
  std::deque<work> waiting_;
  std::atomic<uint64_t> num_pushed_{0}, num_completed_{0}; // written with the mutex held, as the next
  std::atomic<bool> running_{false};
  uint64_t wake_at_ = UINT64_MAX; // the first place that a sleeping thread waits for
  bool worker_sleeps_ = false;    // and nobody has woken it
  bool closed_ = false;
  std::shared_ptr<pending_failure> failure_;
  std::minstd_rand random_;
};

} // namespace xcpu
