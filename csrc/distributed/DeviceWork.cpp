#include "csrc/distributed/DeviceWork.h"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include "csrc/core/Runtime.h"
#include "csrc/distributed/BackgroundThreads.h"
#include "csrc/distributed/Failure.h"
#include "csrc/ops/host/HostLaunch.h"

namespace torch_backend {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365); // sums with the clock do not overflow

Clock::time_point after(std::chrono::milliseconds time) {
  return Clock::now() + std::min(time, kForever);
}

} // namespace

DeviceWork::DeviceWork(int rank, int size, c10d::OpType type, const char* what, c10::Device device,
                       std::vector<at::Tensor> tensors, std::vector<at::Tensor> results,
                       std::chrono::milliseconds timeout, bool completes_on_host)
    : Work(rank, type),
      what_(what),
      size_(size),
      completes_on_host_(completes_on_host),
      device_(device),
      caller_stream_(current_stream(device.index())),
      timeout_(timeout),
      deadline_(after(timeout)),
      results_(std::move(results)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{device})),
      tensors_(std::move(tensors)) {
  if (device_api().async()) {
    ready_.record(caller_stream_);
  }
}

// ---- its end ----

void DeviceWork::abort() {
  fail(std::make_exception_ptr(std::runtime_error("the process group was aborted")));
}

bool DeviceWork::fail(const std::exception_ptr& cause) {
  if (!end_once()) {
    return false;
  }
  const auto error = describe_collective_failure(cause, what_, rank_, size_);
  finish(error);
  if (complete_future_once()) {
    // Who fails a work may hold locks that a callback needs, for its next call of the group or for a wait.
    run_in_background([future = future_, error] { future->setError(error); });
  }
  return true;
}

// ---- the queue's side ----

void DeviceWork::enqueued(const Stream& stream) {
  const bool async = device_api().async();
  if (async) {
    done_.record(stream);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_enqueued_ = true;
  }
  cv_.notify_all();
  if (!async) {
    succeed();
  }
  if (may_complete_future()) {
    // A callback may wait for the queue's next task, or for another callback.
    run_in_background(
        [self = c10::intrusive_ptr<DeviceWork>::unsafe_reclaim_from_nonowning(this)] { self->complete_future(); });
  }
}

bool DeviceWork::may_complete_future() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_ready = device_api().async() ? is_enqueued_ : completed_;
  return future_is_wanted_ && is_ready && complete_future_once();
}

void DeviceWork::complete_future() {
  try {
    c10::OptionalStreamGuard guard;
    if (device_api().async()) {
      // A stream with nothing else on it: the future's events are those of this collective.
      const auto side = stream_from_pool(/*priority=*/0, device_.index());
      is_relied_on_ = true;
      done_.block(side);
      guard.reset_stream(side);
    }
    future_->markCompleted(c10::IValue(results_));
  } catch (...) {
    future_->setErrorIfNeeded(std::current_exception());
  }
}

void DeviceWork::succeed() {
  if (end_once()) {
    forget_tensors();
    finish();
  }
}

void DeviceWork::forget_tensors() {
  std::vector<at::Tensor> unused; // they go without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  unused.swap(tensors_);
}

// ---- the caller's side ----

bool DeviceWork::isCompleted() {
  if (!has_ended()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!is_enqueued_ || !device_api().async()) {
        return false;
      }
    }
    try {
      if (!done_.query()) {
        return false;
      }
      succeed();
    } catch (...) {
      failed_on_device_ = true;
      fail(std::current_exception());
    }
  }
  return Work::isCompleted(); // not before whoever ends it has said how it ended
}

bool DeviceWork::isSuccess() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !exception_;
}

std::vector<at::Tensor> DeviceWork::result() {
  return results_;
}

int DeviceWork::sourceRank() const {
  TORCH_CHECK(source_ >= 0, what(), " receives from no rank.");
  return source_;
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    future_is_wanted_ = true;
  }
  if (may_complete_future()) {
    complete_future();
  }
  return future_;
}

void DeviceWork::raise_failure() const {
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    error = exception_;
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

void DeviceWork::wait_until_enqueued(Clock::time_point limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  cv_.wait_until(lock, limit, [this] { return is_enqueued_ || completed_; });
}

void DeviceWork::wait_on_host(Clock::time_point limit) {
  if (!device_api().async()) {
    std::unique_lock<std::mutex> lock(mutex_);
    cv_.wait_until(lock, limit, [this] { return completed_; });
    return;
  }
  // Asked again and again: a wait for the event would not end with the group's failure.
  auto pause = std::chrono::microseconds(20);
  while (!isCompleted() && Clock::now() < limit) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  const bool has_limit = timeout != kNoTimeout;
  const auto limit = after(has_limit ? timeout : kForever);
  wait_until_enqueued(limit);
  if (has_limit || opType_ == c10d::OpType::BARRIER || !device_api().async()) {
    wait_on_host(limit);
    TORCH_CHECK_WITH(DistBackendError, isCompleted(), what(), " is not complete after ", timeout.count(), " ms.");
  }
  raise_failure();
  is_relied_on_ = true;
  raise_failure(); // what has failed in between may not know that it is relied on
  if (device_api().async()) {
    const auto current = current_stream(device_.index());
    done_.block(current);
    if (current == caller_stream_) {
      forget_tensors(); // what uses their memory next comes after the collective
    }
  }
  return true;
}

void DeviceWork::synchronize() {
  wait();
}

void DeviceWork::blockCurrentStream() {
  if (!completes_on_host_ || !device_api().async() || !device_api().has_stream_host_function()) {
    wait();
    return;
  }
  auto self = c10::intrusive_ptr<DeviceWork>::unsafe_reclaim_from_nonowning(this);
  enqueue_host_work(current_stream(device_.index()), "c10d::wait", [self] {
    self->wait_until_enqueued(after(kForever));
    self->raise_failure();
  });
}

} // namespace torch_backend
