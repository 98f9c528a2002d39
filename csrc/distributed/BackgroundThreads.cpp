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
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  std::size_t num_idle = 0;
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
    lock.unlock();
    task();
    task = nullptr; // it holds tensors, whose end may need locks
    lock.lock();
  }
}

} // namespace

void run_in_background(std::function<void()> task) {
  static auto* threads = new Threads; // its threads never end
  const std::lock_guard<std::mutex> lock(threads->mutex);
  threads->tasks.push_back(std::move(task));
  if (threads->tasks.size() > threads->num_idle) {
    std::thread([] { serve(*threads); }).detach();
  } else {
    threads->changed.notify_one();
  }
}

} // namespace torch_backend
