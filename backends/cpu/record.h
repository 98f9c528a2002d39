// A place in the work of a queue that others wait for, and that is a point in time: what an event stands for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "queue.h"

namespace xcpu {

// Whoever waits for it shares it: an event may be recorded again or destroyed meanwhile.
class record {
 public:
  static std::shared_ptr<record> make(const std::shared_ptr<queue>& on) {
    auto made = std::make_shared<record>();
    made->queue_ = on;
    made->place_ = on->push_brief([made] {
      made->complete();
      return result();
    });
    return made;
  }

  bool done() const {
    return done_.load(std::memory_order_acquire);
  }
  void wait() const {
    if (!done()) queue_->wait(place_);
  }

  // Both once done.
  int64_t time_ns() const {
    return time_ns_;
  }
  result take_failure() const {
    return failure_ ? failure_->take() : result();
  }

 private:
  // When everything before the record is done.
  void complete() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    time_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    failure_ = queue_->last_failure();
    done_.store(true, std::memory_order_release);
  }

  std::shared_ptr<queue> queue_;
  uint64_t place_ = 0;
  // Written before done_ is.
  int64_t time_ns_ = 0;
  std::shared_ptr<pending_failure> failure_; // of the queue, when the record completed
  std::atomic<bool> done_{false};
};

// What is pushed to `on` from here on waits for `waited`. `then`, if it is set, is the result of the wait.
inline void push_wait(queue& on, std::shared_ptr<record> waited, result (record::*then)() const = nullptr) {
  const bool brief = waited->done();
  const auto wait = [waited = std::move(waited), then] {
    waited->wait();
    return then ? ((*waited).*then)() : result();
  };
  if (brief) {
    on.push_brief(wait);
  } else {
    on.push(wait);
  }
}

} // namespace xcpu
