#include "csrc/distributed/ccl/Lane.h"

#include <thread>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include "csrc/core/Runtime.h"

namespace torch_backend::ccl {

Lane::Lane(c10::DeviceIndex device, Ends ends, std::shared_ptr<SlotCalls> calls)
    : device_(device), ends_(std::move(ends)), calls_(std::move(calls)) {}

bool Lane::run(Task task, Failed failed) {
  {
    const std::lock_guard<std::mutex> lock(order_mutex_);
    if (num_queued_ == 0 && connected_.load() && device_api().async()) {
      perform(task, failed);
      return true;
    }
    ++num_queued_;
  }
  thread_.add([self = shared_from_this(), task = std::move(task), failed = std::move(failed)] {
    self->perform(task, failed);
    const std::lock_guard<std::mutex> lock(self->order_mutex_);
    --self->num_queued_;
  });
  return false;
}

void Lane::perform(const Task& task, const Failed& failed) {
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::DeviceGuard device(this->device());
    if (!stream_) {
      stream_.emplace(device_);
    }
    const Stream& stream = stream_->get();
    const c10::StreamGuard guard(stream.unwrap());
    task(connected(stream), stream);
  } catch (...) {
    failed(std::current_exception());
  }
}

void Lane::check_not_aborted() const {
  TORCH_CHECK(!aborted_.load(), "the process group was aborted");
}

Communicator& Lane::connected(const Stream& stream) {
  check_not_aborted();
  if (!connected_.load()) {
    const auto id = meet(*ends_.store, ends_.key, {ends_.rank, ends_.size, ends_.timeout, &aborted_}, create_unique_id);
    is_creating_.store(true); // before the last look at aborted_: one of the two sees the other
    check_not_aborted();
    auto comm = std::make_unique<Communicator>(stream, ends_.size, ends_.rank, id, calls_);
    const std::lock_guard<std::mutex> lock(comm_mutex_);
    is_creating_.store(false);
    check_not_aborted();
    comm_ = std::move(comm);
    connected_.store(true);
  }
  return *comm_;
}

bool Lane::abort() {
  aborted_.store(true);
  const std::lock_guard<std::mutex> lock(comm_mutex_);
  const bool ended = comm_ ? comm_->abort() : !is_creating_.load();
  if (!ended) {
    is_stuck_.store(true);
  }
  return ended;
}

std::exception_ptr Lane::error() {
  const std::lock_guard<std::mutex> lock(comm_mutex_);
  return comm_ && !aborted_.load() ? comm_->error() : nullptr;
}

bool Lane::is_idle() {
  const std::unique_lock<std::mutex> lock(order_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || num_queued_ > 0) {
    return false;
  }
  return !stream_ || !device_api().async() || device_api().is_lost(device_) || stream_->get().query();
}

void Lane::close() {
  try {
    while (!is_idle() && !is_stuck_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception& error) {
    LOG(WARNING) << "While a communicator was closed: " << error.what();
  }
  if (is_stuck_.load()) {
    new std::shared_ptr<Lane>(shared_from_this()); // for the rest of the process
    return;
  }
  thread_.end();
  const std::lock_guard<std::mutex> lock(comm_mutex_);
  comm_.reset();
}

} // namespace torch_backend::ccl
