#include "csrc/distributed/IssueThread.h"

#include <utility>

#include <c10/util/thread_name.h>

namespace torch_backend {

void IssueThread::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void IssueThread::add(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
    }
  }
  changed_.notify_one();
}

void IssueThread::run() {
  c10::setThreadName("tb_collectives");
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr; // it holds tensors, whose end may need locks
    lock.lock();
  }
}

} // namespace torch_backend
