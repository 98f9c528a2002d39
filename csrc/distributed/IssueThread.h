// The thread in which collectives of an asynchronous device are handed to the host's transport.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace torch_backend {

/// Runs tasks one after the other, in the order in which they came: every rank must hand its collectives to the transport
/// in the same order. The thread starts with the first task.
class IssueThread {
 public:
  IssueThread() = default;
  ~IssueThread() {
    end();
  }
  IssueThread(const IssueThread&) = delete;
  IssueThread& operator=(const IssueThread&) = delete;

  /// Runs what is left, then ends the thread. Not from the thread itself.
  void end();

  /// `task` does not throw. Not after end().
  void add(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_; // guards everything below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

} // namespace torch_backend
