#include "csrc/distributed/Watchdog.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/thread_name.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

struct Watchdog {
  std::mutex mutex; // guards what follows
  std::condition_variable changed;
  std::vector<Poll> all;
  uint64_t rounds_begun = 0;
  uint64_t rounds_ended = 0;
  bool is_asked = false; // to begin the next round now, as a wait has failed
  bool is_looking = false;
  bool is_running = false;
  bool ending = false;
};

Watchdog& watchdog() {
  static auto* only = new Watchdog; // its thread outlives static objects
  return *only;
}

void run() {
  c10::setThreadName("tb_watchdog");
  auto& self = watchdog();
  std::unique_lock<std::mutex> lock(self.mutex);
  for (;;) {
    self.is_asked = self.is_asked && !self.all.empty(); // a round that begins later is another one
    self.changed.wait(lock, [&] { return self.ending || !self.all.empty(); });
    if (self.ending) {
      return;
    }
    auto all = std::exchange(self.all, {});
    self.is_looking = true;
    const bool a_wait_has_failed = std::exchange(self.is_asked, false);
    ++self.rounds_begun;
    lock.unlock();
    all.erase(std::remove_if(all.begin(), all.end(), [=](const auto& poll) { return !poll(a_wait_has_failed); }),
              all.end());
    lock.lock();
    self.is_looking = false;
    ++self.rounds_ended;
    self.all.insert(self.all.end(), all.begin(), all.end());
    self.changed.notify_all();
    self.changed.wait_for(lock, std::chrono::milliseconds(kWatchIntervalMs),
                          [&] { return self.is_asked || self.ending; });
  }
}

/// Wait until all have been polled once more: a device may have told of a failure before a poll has seen it. Not for long,
/// as who waits may hold what a poll needs.
void look() {
  if (device_api().in_bad_fork()) {
    return; // the thread does not exist here
  }
  auto& self = watchdog();
  std::unique_lock<std::mutex> lock(self.mutex);
  const auto round = self.rounds_begun + 1;
  const auto is_over = [&] {
    return self.rounds_ended >= round || (self.all.empty() && !self.is_looking) || self.ending;
  };
  if (!is_over()) {
    self.is_asked = true;
    self.changed.notify_all();
    self.changed.wait_for(lock, std::chrono::milliseconds(10 * kWatchIntervalMs), is_over);
  }
}

} // namespace

void end_watch() {
  auto& self = watchdog();
  std::unique_lock<std::mutex> lock(self.mutex);
  self.ending = true;
  self.changed.notify_all();
  self.changed.wait_for(lock, std::chrono::seconds(1), [&] { return !self.is_looking; });
}

void watch(Poll poll) {
  auto& self = watchdog();
  const std::lock_guard<std::mutex> lock(self.mutex);
  self.all.push_back(std::move(poll));
  if (!std::exchange(self.is_running, true)) {
    ask_for_async_errors(&look);
    std::thread(run).detach();
    std::atexit(end_watch);
  }
  self.changed.notify_all();
}

} // namespace torch_backend
