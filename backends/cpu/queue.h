// A worker thread that runs what is pushed, one after the other: what stands behind a stream.
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

class queue {
 public:
  using work = std::function<result()>;

  // `seed` makes the injected delays reproducible. The thread is detached and shares ownership: a queue that was closed
  // finishes its work and goes, and one that was not ends with the process, which waits for neither.
  static std::shared_ptr<queue> start(uint32_t seed);

  void push(work next);
  // No more pushes will come.
  void close();

  // Waits for what was pushed before the call. Then, and if nothing is left to do when queried, returns a failure that
  // nobody has been told of yet.
  result synchronize();
  result query();

  // Of the work done so far; null if there was none. For work on this queue.
  std::shared_ptr<pending_failure> last_failure();

 private:
  explicit queue(uint32_t seed) : random_(seed) {}
  void run();
  bool next(work* out_work);
  void complete(result outcome);
  void delay();
  result take_failure();

  std::mutex mutex_; // guards all but random_, which only the worker uses; not held while work runs
  std::condition_variable pushed_, completed_;
  std::deque<work> waiting_;
  uint64_t num_pushed_ = 0, num_completed_ = 0;
  bool closed_ = false;
  std::shared_ptr<pending_failure> failure_;
  std::minstd_rand random_;
};

} // namespace xcpu
