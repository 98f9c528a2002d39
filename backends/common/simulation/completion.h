// Work that others wait for: a point of a stream that it has come to or not.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace sim {

// Any thread.
struct completion {
  std::mutex mutex; // guards done, time
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point time;

  void finish() {
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
    time = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
  bool is_done() {
    const std::lock_guard<std::mutex> lock(mutex);
    return done;
  }
};

} // namespace sim
