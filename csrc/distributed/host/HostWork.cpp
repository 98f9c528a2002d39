#include "csrc/distributed/host/HostWork.h"

#include <utility>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/host/HostLaunch.h"

namespace torch_backend {
namespace {

std::optional<c10::Device> device_of(const HostTensors& tensors) {
  return tensors.has_device() ? std::optional<c10::Device>(tensors.device()) : std::nullopt;
}

} // namespace

HostWork::HostWork(int rank, int size, c10d::OpType type, const char* what, std::shared_ptr<HostTensors> tensors)
    : DeviceWork(rank, size, type, what, device_of(*tensors)), tensors_(std::move(tensors)) {}

void HostWork::synchronize() {
  if (device_api().async()) {
    future_->wait();
  }
}

std::vector<at::Tensor> HostWork::result() {
  return tensors_->written();
}

void HostWork::succeed() {
  if (has_ended()) {
    return; // aborted: the tensors' values are undefined, and memory may be in other use
  }
  try {
    // The copies back, and the events that the future records, belong on a stream that has nothing else to do.
    c10::OptionalStreamGuard stream;
    if (tensors_->has_device()) {
      stream.reset_stream(tensors_->transfer_stream());
    }
    tensors_->deliver();
    if (end_once()) {
      future_->markCompleted(c10::IValue(tensors_->written()));
      finish();
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

void HostCollectiveWork::follow(c10::intrusive_ptr<c10d::Work> inner) {
  auto self = c10::intrusive_ptr<HostCollectiveWork>::unsafe_reclaim_from_nonowning(this);
  inner->getFuture()->addCallback(
      [self](c10::ivalue::Future& future) {
        if (future.hasError()) {
          self->fail(future.exception_ptr());
        } else {
          self->succeed();
        }
      },
      /*uses_future=*/false);
}

void HostCollectiveWork::blockCurrentStream() {
  auto& api = device_api();
  if (!api.async() || !api.has_stream_host_function() || !tensors_->has_device() || !tensors_->is_zero_copy()) {
    wait();
    return;
  }
  auto self = c10::intrusive_ptr<HostCollectiveWork>::unsafe_reclaim_from_nonowning(this);
  enqueue_host_work(current_stream(tensors_->device().index()), "c10d::wait", [self] {
    std::unique_lock<std::mutex> lock(self->mutex_);
    self->cv_.wait(lock, [&] { return self->completed_; });
    if (self->exception_) {
      std::rethrow_exception(self->exception_);
    }
  });
}

void HostPeerWork::follow(c10::intrusive_ptr<c10d::Work> inner) {
  {
    const std::lock_guard<std::mutex> lock(inner_mutex_);
    inner_ = std::move(inner);
  }
  started_.notify_all();
}

bool HostPeerWork::wait(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> one(wait_mutex_);
  c10::intrusive_ptr<c10d::Work> inner;
  {
    std::unique_lock<std::mutex> lock(inner_mutex_);
    // What could not be started has ended with an error.
    while (!inner_ && !isCompleted()) {
      started_.wait_for(lock, std::chrono::milliseconds(50));
    }
    inner = inner_;
  }
  if (!isCompleted()) {
    try {
      inner->wait(timeout);
      succeed();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  return Work::wait(kNoTimeout);
}

void HostPeerWork::blockCurrentStream() {
  wait();
}

int HostPeerWork::sourceRank() const {
  const std::lock_guard<std::mutex> lock(inner_mutex_);
  TORCH_CHECK(inner_, "Which rank was received from is known after wait().");
  return inner_->sourceRank();
}

void HostPeerWork::abort() {
  c10::intrusive_ptr<c10d::Work> inner;
  {
    const std::lock_guard<std::mutex> lock(inner_mutex_);
    inner = inner_;
  }
  if (inner && !isCompleted()) {
    inner->abort();
  }
  HostWork::abort();
  started_.notify_all();
}

} // namespace torch_backend
