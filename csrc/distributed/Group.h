// The ranks of one process group: the queues of their communicators, what runs there, and how all of it fails.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/distributed/Collectives.h"
#include "csrc/distributed/CommunicatorQueue.h"
#include "csrc/distributed/DeviceWork.h"
#include "csrc/distributed/Staging.h"

namespace torch_backend {

/// Note [Failure of a group]
/// Ranks whose communicators disagree about what has happened cannot go on. So when work fails, takes too long, or a
/// communicator reports an error, the whole group fails: all its work ends with an error, pending calls are aborted if the
/// communicator can, later calls are refused. On an asynchronous device the error is also raised by the next wait for the
/// device, since nobody may wait for the work on the host. What is refused before anything was enqueued (a dtype that
/// cannot be reduced, say) fails alone.
///
/// Threads: any.
class Group final : public std::enable_shared_from_this<Group> {
 public:
  /// Over `gloo`, a backend of the same ranks for CPU tensors, or over the device library if that is NULL.
  Group(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<c10d::Backend> gloo);

  /// Enqueues a collective on the current stream, which is the communicator's. The tensors of the work are there; what is
  /// staged is delivered afterwards.
  using Body = std::function<void(Collectives&, Staging&)>;
  /// Start `work` on the queue of collectives. Throws what fails at once.
  void start(const c10::intrusive_ptr<DeviceWork>& work, c10::DeviceIndex device, std::chrono::milliseconds timeout,
             Body body);
  /// Start to send `tensor` to `peer`, or to receive it from there or from kAnyRank.
  void start_peer(const c10::intrusive_ptr<DeviceWork>& work, const at::Tensor& tensor,
                  std::chrono::milliseconds timeout, int peer, int tag, bool sends);
  /// Begin to connect the ranks for collectives of `device`.
  void connect(c10::DeviceIndex device, std::chrono::milliseconds timeout);
  /// Returns in every rank when all have called it. Throws, naming ranks that did not come.
  void rendezvous_on_store(std::chrono::milliseconds timeout);

  /// All ends now: of unfinished work with an error, which the devices raise as well.
  void abort();
  /// Waits for what runs, and frees the communicators. Later calls are refused.
  void close();

  std::map<std::string, uint64_t> slot_calls() const {
    return counts_->all();
  }

  bool has_failed();
  /// Of what Gloo does from now on. The device library's work has time-outs of its own, as has all work here.
  void set_timeout(std::chrono::milliseconds timeout);
  bool is_over_gloo() const {
    return over_gloo_;
  }

  /// Looks for what has failed, and whether there is something left to look after. For the watchdog, see Poll.
  bool poll(bool a_wait_has_failed);

 private:
  using QueuePtr = std::shared_ptr<CommunicatorQueue>;
  /// The two ends of messages with a tag; of collectives none.
  struct Route {
    int from;
    int to;
    int tag;
    bool operator<(const Route& other) const {
      return std::tie(from, to, tag) < std::tie(other.from, other.to, other.tag);
    }
  };
  static constexpr Route kCollectives{-2, -2, 0};

  /// Throws if the group has failed.
  QueuePtr queue(const char* what, c10::DeviceIndex device, const Route& route, std::chrono::milliseconds timeout);
  void drop_idle_queues();
  std::vector<QueuePtr> queues();
  void start_on(const QueuePtr& queue, const c10::intrusive_ptr<DeviceWork>& work, Body body);
  void fail(const c10::intrusive_ptr<DeviceWork>& first, const std::exception_ptr& cause);
  /// `first` ends with `described`, and when it is the first, all else with `cause`. The devices raise `described` if a
  /// stream waits for what has ended so. Later calls are refused with `text`.
  void end_all(const c10::intrusive_ptr<DeviceWork>& first, const std::exception_ptr& described,
               const std::exception_ptr& cause, const std::string& text);
  void take_ended();

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const bool over_gloo_;
  const std::shared_ptr<CallCounts> counts_ = std::make_shared<CallCounts>();

  std::mutex mutex_;                       // guards what follows
  c10::intrusive_ptr<c10d::Backend> gloo_; // NULL from close() on
  std::map<std::pair<c10::DeviceIndex, Route>, QueuePtr> queues_;
  std::map<Route, int> num_queues_;                     // for how many devices
  std::vector<c10::intrusive_ptr<DeviceWork>> pending_; // and some that has just ended
  bool is_watched_ = false;
  std::string failure_; // why it does no more work; empty: it does
  int num_rendezvous_ = 0;
};

} // namespace torch_backend
