#include "csrc/distributed/BackgroundThreads.h"

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
  std::condition_variable changed, finished;
  std::deque<std::function<void()>> tasks;
  std::size_t num_idle = 0;
  std::size_t num_busy = 0;
  bool is_finished = false;
};

void serve(Threads& threads) {
  c10::setThreadName("tb_collectives");
  std::unique_lock<std::mutex> lock(threads.mutex);
  for (;;) {
    ++threads.num_idle;
    threads.changed.wait(lock, [&] { return !threads.tasks.empty(); });
    --threads.num_idle;
    auto task = std::move(threads.tasks.front());
    threads.tasks.pop_front();
    ++threads.num_busy;
    lock.unlock();
    task();
    lock.lock();
    if (threads.is_finished) {
      new std::function<void()>(std::move(task));
    }
    lock.unlock();
    task = nullptr; // it holds tensors, whose end may need locks
    lock.lock();
    --threads.num_busy;
    threads.finished.notify_all();
  }
}

Threads* all_threads() {
  static auto* threads = new Threads; // its threads never end
  return threads;
}

} // namespace

void run_in_background(std::function<void()> task) {
  auto* threads = all_threads();
  const std::lock_guard<std::mutex> lock(threads->mutex);
  threads->tasks.push_back(std::move(task));
  if (threads->tasks.size() > threads->num_idle) {
    std::thread([threads] { serve(*threads); }).detach();
  } else {
    threads->changed.notify_one();
  }
}

void finish_background(std::chrono::milliseconds limit) {
  auto* threads = all_threads();
  std::unique_lock<std::mutex> lock(threads->mutex);
  threads->finished.wait_for(lock, limit, [&] { return threads->tasks.empty() && threads->num_busy == 0; });
  threads->is_finished = true;
}

} // namespace torch_backend
