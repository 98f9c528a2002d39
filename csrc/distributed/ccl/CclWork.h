// A collective that the device library does.
#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "csrc/core/Event.h"
#include "csrc/core/Stream.h"
#include "csrc/distributed/DeviceWork.h"

namespace torch_backend::ccl {

/// Note [Work on the device's stream]
/// On an asynchronous device, wait() makes the calling thread's current stream wait, and the host goes on, as with NCCL; so
/// wait() raises only what is known by then. What fails later is raised by the next wait for the device (a copy to the
/// host, synchronize()), by later calls, and by wait(timeout), which waits on the host. The host also waits for barriers,
/// and until the collective is enqueued, which takes time only where ranks connect.
///
/// On a synchronous device the host waits, and wait() raises every failure.
class CclWork final : public DeviceWork {
 public:
  /// Holds `tensors`, all that the collective uses, until it is complete, or the stream of the call waits for it.
  CclWork(int rank, int size, c10d::OpType type, const char* what, c10::Device device, std::vector<at::Tensor> tensors,
          std::vector<at::Tensor> results, std::chrono::milliseconds timeout);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  void synchronize() override;
  void blockCurrentStream() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  void set_source(int rank) {
    source_ = rank;
  }

  /// In the caller's thread: the point in its current stream that the collective comes after.
  const Event& ready() const {
    return ready_;
  }
  /// In the lane: everything is enqueued on `stream`; on a synchronous device it is done.
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
  /// Whether whoever asks has to complete the future: it is wanted, and there is something to complete it with.
  bool may_complete_future();
  void complete_future();
  void wait_until_enqueued(std::chrono::steady_clock::time_point limit);
  void wait_on_host(std::chrono::steady_clock::time_point limit);
  void succeed();
  void forget_tensors();

  const c10::Device device_;
  const Stream caller_stream_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::steady_clock::time_point deadline_;
  std::vector<at::Tensor> results_;
  int source_ = -1;
  std::atomic<bool> failed_on_device_{false};
  std::atomic<bool> is_relied_on_{false}; // set before the last look whether it has failed
  Event ready_{/*enable_timing=*/false};
  Event done_{/*enable_timing=*/false}; // recorded once is_enqueued_

  bool is_enqueued_ = false; // guarded by mutex_, as is what follows
  bool future_is_wanted_ = false;
  std::vector<at::Tensor> tensors_;
};

} // namespace torch_backend::ccl
