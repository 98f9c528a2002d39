// The ranks of one process group: their lanes, what runs on them, and how all of it fails.
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

#include "csrc/distributed/ccl/CclWork.h"
#include "csrc/distributed/ccl/Collectives.h"
#include "csrc/distributed/ccl/Lane.h"
#include "csrc/distributed/ccl/Watchdog.h"

namespace torch_backend::ccl {

/// Note [Failure of a group]
/// Ranks whose communicators disagree about what has happened cannot go on. So when work fails, takes too long, or the
/// library reports an error, the whole group fails: all its work ends with an error, pending calls are aborted if the
/// library can, later calls are refused. On an asynchronous device the error is also raised by the next wait for the
/// device, since nobody may wait for the work on the host. What is refused before anything was enqueued (a dtype that
/// cannot be reduced, say) fails alone.
///
/// Threads: any.
class Group final : public Watched, public std::enable_shared_from_this<Group> {
 public:
  Group(c10::intrusive_ptr<c10d::Store> store, int rank, int size);

  /// Enqueues a collective on the current stream, which is the lane's. The tensors of `work` are there.
  using Body = std::function<void(Collectives&)>;
  /// Start `work` on the lane of collectives. Throws what fails at once.
  void start(const c10::intrusive_ptr<CclWork>& work, c10::DeviceIndex device, std::chrono::milliseconds timeout,
             Body body);
  /// Start a send (from this rank to `peer`) or a receive.
  void start_peer(const c10::intrusive_ptr<CclWork>& work, c10::DeviceIndex device, std::chrono::milliseconds timeout,
                  int peer, bool sends, Body body);
  /// Begin to connect the ranks for collectives of `device`.
  void connect(c10::DeviceIndex device, std::chrono::milliseconds timeout);
  /// Returns in every rank when all have called it. Throws, naming ranks that did not come.
  void meet_on_store(std::chrono::milliseconds timeout);

  /// All ends now: of unfinished work with an error, which the devices raise as well.
  void abort();
  /// Waits for what runs, and frees the communicators. Later calls are refused.
  void close();

  std::map<std::string, uint64_t> slot_calls() const {
    return calls_->all();
  }

  bool has_failed();

  bool look() override;

 private:
  std::shared_ptr<Lane> lane(c10::DeviceIndex device, int from, int to, std::chrono::milliseconds timeout);
  void start_on(const std::shared_ptr<Lane>& lane, const c10::intrusive_ptr<CclWork>& work, Body body);
  void refuse_if_failed(const CclWork& work);
  void fail(const c10::intrusive_ptr<CclWork>& first, const std::exception_ptr& cause);
  /// `first` ends with `described`, and when it is the first, all else with `cause`. The devices raise `described` if a
  /// stream waits for what has ended so.
  void end_all(const c10::intrusive_ptr<CclWork>& first, const std::exception_ptr& described,
               const std::exception_ptr& cause);
  void take_ended();

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const std::shared_ptr<SlotCalls> calls_ = std::make_shared<SlotCalls>();

  std::mutex mutex_;                                                              // guards what follows
  std::map<std::tuple<c10::DeviceIndex, int, int>, std::shared_ptr<Lane>> lanes_; // by device, from, to
  std::map<std::pair<int, int>, int> num_lanes_;                                  // by from, to
  std::vector<c10::intrusive_ptr<CclWork>> pending_;                              // and some that has just ended
  bool is_watched_ = false;
  std::exception_ptr failure_;
  int num_meetings_ = 0;
};

} // namespace torch_backend::ccl
