// A collective of the device's tensors that a transport on the host does.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/distributed/DeviceWork.h"
#include "csrc/distributed/host/HostTensors.h"

namespace torch_backend {

/// What both kinds of work on the host share. wait() returns when the result is on its way to the device, and makes the
/// calling thread's current stream wait for it: work that is enqueued afterwards sees it. The host waits as well, because
/// it is the host that does the work; a failure is raised here.
class HostWork : public DeviceWork {
 public:
  HostWork(int rank, int size, c10d::OpType type, const char* what, std::shared_ptr<HostTensors> tensors);

  /// Let the calling thread's current stream wait for the result. Pre: complete.
  void synchronize() override;
  std::vector<at::Tensor> result() override;

  /// Called once the transport has taken the work over.
  virtual void follow(c10::intrusive_ptr<c10d::Work> inner) = 0;

 protected:
  /// Bring the result back and end it, unless it has ended.
  void succeed();

  std::shared_ptr<HostTensors> tensors_;
};

/// A collective: the transport reports its end.
class HostCollectiveWork final : public HostWork {
 public:
  using HostWork::HostWork;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }
  /// The current stream waits and the host does not, where the device runs host functions in stream order and the result
  /// needs no copy back; elsewhere wait().
  void blockCurrentStream() override;
  void follow(c10::intrusive_ptr<c10d::Work> inner) override;
};

/// A send or receive: its end is seen by who waits for it, as with the transport itself, and it has no future.
class HostPeerWork final : public HostWork {
 public:
  using HostWork::HostWork;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  int sourceRank() const override;
  /// What the transport is doing ends with its time-out.
  void abort() override;
  void follow(c10::intrusive_ptr<c10d::Work> inner) override;

 private:
  mutable std::mutex inner_mutex_; // guards inner_; not held while waiting for it
  std::condition_variable started_;
  std::mutex wait_mutex_; // one thread waits for the transport, others for that thread
  c10::intrusive_ptr<c10d::Work> inner_;
};

} // namespace torch_backend
