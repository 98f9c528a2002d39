// A collective of the device's tensors, as whoever called it sees it.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <vector>

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "csrc/core/Event.h"
#include "csrc/core/Stream.h"

namespace torch_backend {

/// Note [Work on the device's stream]
/// On an asynchronous device, wait() makes the calling thread's current stream wait, and the host goes on, as with NCCL; so
/// wait() raises only what is known by then. What fails later is raised by the next wait for the device (a copy to the
/// host, synchronize()), by later calls, and by wait(timeout), which waits on the host. The host also waits for barriers,
/// and until the collective is enqueued, which takes time only where ranks connect.
///
/// On a synchronous device, and over Gloo, the host waits, and wait() raises every failure: it is the host that does the
/// work.
/// It has a name, a number and one end: what comes first of success, failure and abort stays.
class DeviceWork final : public c10d::Work {
 public:
  /// `what` names the collective in errors and outlives the work. Holds `tensors`, all that the collective uses, until it is
  /// complete, or the stream of the call waits for it. `completes_on_host`: it is complete once it is enqueued.
  DeviceWork(int rank, int size, c10d::OpType type, const char* what, c10::Device device,
             std::vector<at::Tensor> tensors, std::vector<at::Tensor> results, std::chrono::milliseconds timeout,
             bool completes_on_host);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  void synchronize() override;
  /// The current stream waits and the host does not, also where it does the work, if the device runs host functions in
  /// stream order and the work completes on the host; elsewhere wait().
  void blockCurrentStream() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  /// The collective's number in its group, from 1 on; 0 for a send or receive.
  uint64_t getSequencenumber() const override {
    return sequence_number_;
  }
  /// Fails with "aborted" unless it is complete.
  void abort() override;
  /// End it with an error, described as that of this collective, unless it has ended. Whether it has ended by this.
  bool fail(const std::exception_ptr& cause);

  const char* what() const {
    return what_;
  }
  /// Has ended, well or not. Unlike isCompleted, asks no device; and who ends it may be about to say how.
  bool has_ended() const {
    return ended_;
  }
  bool completes_on_host() const {
    return completes_on_host_;
  }

  /// Before anyone else has the work.
  void set_sequence_number(uint64_t number) {
    sequence_number_ = number;
  }
  /// Of a receive, before enqueued().
  void set_source(int rank) {
    source_ = rank;
  }

  /// In the caller's thread: the point in its current stream that the collective comes after.
  const Event& ready() const {
    return ready_;
  }
  /// In the queue: everything is enqueued on `stream`; on a synchronous device it is done.
  void enqueued(const Stream& stream);
  /// Throws what it has failed with, if it has.
  void raise_failure() const;

  /// It was enqueued, and the device has reported an error instead of its end.
  bool failed_on_device() const {
    return failed_on_device_;
  }
  /// A stream, or a future, waits for its end: a failure reaches nobody but through the device.
  bool is_relied_on() const {
    return is_relied_on_;
  }
  std::chrono::milliseconds time_limit() const {
    return timeout_;
  }
  std::chrono::steady_clock::time_point deadline() const {
    return deadline_;
  }

 private:
  /// True once: for whoever may end it, or complete its future.
  bool end_once() {
    return !ended_.exchange(true);
  }
  bool complete_future_once() {
    return !future_completed_.exchange(true);
  }
  /// Whether whoever asks has to complete the future: it is wanted, and there is something to complete it with.
  bool may_complete_future();
  void complete_future();
  void wait_until_enqueued(std::chrono::steady_clock::time_point limit);
  void wait_on_host(std::chrono::steady_clock::time_point limit);
  void succeed();
  void forget_tensors();

  const char* what_;
  const int size_;
  const bool completes_on_host_;
  const c10::Device device_;
  const Stream caller_stream_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::steady_clock::time_point deadline_;
  std::vector<at::Tensor> results_;
  int source_ = -1;
  uint64_t sequence_number_ = 0;
  const c10::intrusive_ptr<c10::ivalue::Future> future_; // its value is the tensors that are written
  std::atomic<bool> future_completed_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> failed_on_device_{false};
  std::atomic<bool> is_relied_on_{false}; // set before the last look whether it has failed
  Event ready_{/*enable_timing=*/false};
  Event done_{/*enable_timing=*/false}; // recorded once is_enqueued_

  bool is_enqueued_ = false; // guarded by mutex_, as is what follows
  bool future_is_wanted_ = false;
  std::vector<at::Tensor> tensors_;
};

} // namespace torch_backend
