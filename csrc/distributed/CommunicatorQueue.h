// One communicator with its stream, and the order of what is enqueued there.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/distributed/CommStream.h"
#include "csrc/distributed/Communicator.h"

namespace torch_backend {

/// Note [Queues of communicators]
/// A group has a queue for its collectives, and one for each direction between two ranks that send to each other (over
/// Gloo, for each tag too): so a send, which may block until it is matched, never stands before the receive that the
/// other side waits for.
///
/// Tasks of a queue run in the order in which they were given, in a background thread: the communicator is made by the
/// first task, which waits for the other ranks, and on a synchronous device, or over Gloo, every call waits for them. Once
/// there is a communicator, tasks that only enqueue work run in the caller's thread while nothing is before them.
///
/// Threads: any. Held by shared_ptr: a task that never returns keeps its queue.
class CommunicatorQueue : public std::enable_shared_from_this<CommunicatorQueue> {
 public:
  /// Who is connected, and how.
  struct Ends {
    c10::intrusive_ptr<c10d::Backend> gloo; // NULL: the device library connects, by what follows
    c10::intrusive_ptr<c10d::Store> store;
    std::string key; // the queue's own in the store
    int rank;        // in the queue's own numbers, as is size
    int size;
    std::chrono::milliseconds timeout; // for all to come
  };

  CommunicatorQueue(c10::DeviceIndex device, Ends ends, std::shared_ptr<CallCounts> counts);
  CommunicatorQueue(const CommunicatorQueue&) = delete;
  CommunicatorQueue& operator=(const CommunicatorQueue&) = delete;

  c10::Device device() const {
    return c10::Device(c10::DeviceType::PrivateUse1, device_);
  }

  /// A task finds the queue's device and stream current, and does not throw. `failed` is called in place of it if there is
  /// no communicator: the ranks did not come, or the queue was aborted. Whether the task has run when this returns.
  using Task = std::function<void(Communicator&, const Stream&)>;
  using Failed = std::function<void(const std::exception_ptr&)>;
  bool run(Task task, Failed failed);

  /// Ends pending calls if the communicator can, and makes later tasks fail. Any thread.
  void abort();
  /// What was found to be wrong with the communicator, NULL while it is well or does not exist.
  std::exception_ptr error();

  /// Whether there is nothing to do, on the stream neither.
  bool is_idle();
  /// Waits for all tasks and what they have enqueued, and destroys the communicator. A queue that was aborted and could
  /// not be ended is left as it is: a task of it may never return.
  void close();

 private:
  void run_queued();
  void perform(const Task& task, const Failed& failed);
  void check_not_aborted() const;
  Communicator& connected(const Stream& stream);

  const c10::DeviceIndex device_;
  const Ends ends_;
  const std::shared_ptr<CallCounts> counts_;

  std::mutex order_mutex_;                    // guards tasks_; held by a task that runs in its caller's thread
  std::deque<std::pair<Task, Failed>> tasks_; // the first one runs

  std::mutex comm_mutex_; // guards comm_ against abort and error, which do not wait for tasks
  std::optional<CommStream> stream_;
  std::unique_ptr<Communicator> comm_;
  std::atomic<bool> connected_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> is_creating_{false}; // in comm_create, which cannot be aborted
  std::atomic<bool> is_stuck_{false};
};

} // namespace torch_backend
