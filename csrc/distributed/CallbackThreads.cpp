#include "csrc/distributed/CallbackThreads.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <c10/util/thread_name.h>

namespace torch_backend {
namespace {

struct Threads {
  std::mutex mutex; // guards what follows
  std::condition_variable changed;
  std::deque<std::function<void()>> callbacks;
  std::size_t num_idle = 0;
};

void serve(Threads& threads) {
  c10::setThreadName("tb_callbacks");
  std::unique_lock<std::mutex> lock(threads.mutex);
  for (;;) {
    ++threads.num_idle;
    threads.changed.wait(lock, [&] { return !threads.callbacks.empty(); });
    --threads.num_idle;
    auto callback = std::move(threads.callbacks.front());
    threads.callbacks.pop_front();
    lock.unlock();
    callback();
    callback = nullptr; // it holds tensors, whose end may need locks
    lock.lock();
  }
}

} // namespace

void run_callback(std::function<void()> callback) {
  static auto* threads = new Threads; // its threads never end
  const std::lock_guard<std::mutex> lock(threads->mutex);
  threads->callbacks.push_back(std::move(callback));
  if (threads->callbacks.size() > threads->num_idle) {
    std::thread([] { serve(*threads); }).detach();
  } else {
    threads->changed.notify_one();
  }
}

} // namespace torch_backend
