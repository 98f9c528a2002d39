// One communicator with its stream, and the order of what is enqueued there.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/distributed/IssueThread.h"
#include "csrc/distributed/ccl/CommStream.h"
#include "csrc/distributed/ccl/Communicator.h"
#include "csrc/distributed/ccl/Meeting.h"

namespace torch_backend::ccl {

/// Note [Lanes]
/// A group has a lane for its collectives, and one for each direction between two ranks that send to each other: so a
/// send, which may block its stream until it is matched, never stands before the receive that the other side waits for.
///
/// Tasks of a lane run in the order in which they were given, in a thread of the lane: the communicator is made by the
/// first task, which waits for the other ranks, and on a synchronous device every call waits for them. Once there is a
/// communicator, tasks on an asynchronous device only enqueue work, and run in the caller's thread while nothing is
/// before them.
///
/// Threads: any. Held by shared_ptr: a task that never returns keeps its lane.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  /// Who is at the other ends, in the lane's own numbers, and where they meet.
  struct Ends {
    c10::intrusive_ptr<c10d::Store> store;
    std::string key; // the lane's own in the store
    int rank;
    int size;
    std::chrono::milliseconds timeout; // for all to come
  };

  Lane(c10::DeviceIndex device, Ends ends, std::shared_ptr<SlotCalls> calls);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  c10::Device device() const {
    return c10::Device(c10::DeviceType::PrivateUse1, device_);
  }

  /// A task finds the lane's device and stream current, and does not throw. `failed` is called in place of it if there is
  /// no communicator: the ranks did not come, or the lane was aborted. Whether the task has run when this returns.
  using Task = std::function<void(Communicator&, const Stream&)>;
  using Failed = std::function<void(const std::exception_ptr&)>;
  bool run(Task task, Failed failed);

  /// Ends pending calls if the library can, and makes later tasks fail. Whether it can. Any thread.
  bool abort();
  /// What the library says of the communicator, NULL while it is well or does not exist.
  std::exception_ptr error();

  /// Waits for all tasks and what they have enqueued, and destroys the communicator. A lane that was aborted and could not
  /// be ended is left as it is: a task of it may never return.
  void close();

 private:
  bool is_idle();
  void perform(const Task& task, const Failed& failed);
  void check_not_aborted() const;
  Communicator& connected(const Stream& stream);

  const c10::DeviceIndex device_;
  const Ends ends_;
  const std::shared_ptr<SlotCalls> calls_;

  std::mutex order_mutex_; // guards num_queued_; held by a task that runs in its caller's thread
  int num_queued_ = 0;     // tasks in the thread or before it

  std::mutex comm_mutex_; // guards comm_ against abort and error, which do not wait for tasks
  std::optional<CommStream> stream_;
  std::unique_ptr<Communicator> comm_;
  std::atomic<bool> connected_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> is_creating_{false}; // in comm_create, which cannot be aborted
  std::atomic<bool> is_stuck_{false};
  IssueThread thread_;
};

} // namespace torch_backend::ccl
