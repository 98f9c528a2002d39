#include "csrc/distributed/DeviceWork.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/core/jit_type.h>

#include "csrc/distributed/CallbackThreads.h"
#include "csrc/distributed/Failure.h"

namespace torch_backend {

DeviceWork::DeviceWork(int rank, int size, c10d::OpType type, const char* what, std::optional<c10::Device> device)
    : Work(rank, type),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()),
          device ? std::vector<c10::Device>{*device} : std::vector<c10::Device>{})),
      what_(what),
      size_(size) {}

void DeviceWork::abort() {
  fail(std::make_exception_ptr(std::runtime_error("the process group was aborted")));
}

bool DeviceWork::has_ended() const {
  const std::lock_guard<std::mutex> lock(end_mutex_);
  return ended_;
}

bool DeviceWork::end_once() {
  const std::lock_guard<std::mutex> lock(end_mutex_);
  return !std::exchange(ended_, true);
}

bool DeviceWork::fail(const std::exception_ptr& cause) {
  if (!end_once()) {
    return false;
  }
  const auto error = describe_collective_failure(cause, what_, rank_, size_);
  finish(error);
  if (complete_future_once()) {
    // Who fails a work may hold locks that a callback needs, for its next call of the group or for a wait.
    run_callback([future = future_, error] { future->setError(error); });
  }
  return true;
}

} // namespace torch_backend
