#include "csrc/distributed/Watchdog.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/thread_name.h>

namespace torch_backend {
namespace {

struct Watchdog {
  std::mutex mutex; // guards what follows
  std::condition_variable changed;
  std::vector<std::function<bool()>> all;
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
    self.changed.wait(lock, [&] { return self.ending || !self.all.empty(); });
    if (self.ending) {
      return;
    }
    auto all = std::exchange(self.all, {});
    self.is_looking = true;
    lock.unlock();
    all.erase(std::remove_if(all.begin(), all.end(), [](const auto& poll) { return !poll(); }), all.end());
    lock.lock();
    self.is_looking = false;
    self.all.insert(self.all.end(), all.begin(), all.end());
    self.changed.notify_all();
    self.changed.wait_for(lock, std::chrono::milliseconds(kWatchIntervalMs), [&] { return self.ending; });
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

void watch(std::function<bool()> poll) {
  auto& self = watchdog();
  const std::lock_guard<std::mutex> lock(self.mutex);
  self.all.push_back(std::move(poll));
  if (!std::exchange(self.is_running, true)) {
    std::thread(run).detach();
    std::atexit(end_watch);
  }
  self.changed.notify_all();
}

} // namespace torch_backend
