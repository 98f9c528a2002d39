#include "csrc/distributed/CommunicatorQueue.h"

#include <thread>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include "csrc/core/Runtime.h"
#include "csrc/distributed/BackgroundThreads.h"
#include "csrc/distributed/Rendezvous.h"
#include "csrc/distributed/ccl/CclCommunicator.h"
#include "csrc/distributed/gloo/GlooCommunicator.h"

namespace torch_backend {

CommunicatorQueue::CommunicatorQueue(c10::DeviceIndex device, Ends ends, std::shared_ptr<CallCounts> counts)
    : device_(device), ends_(std::move(ends)), counts_(std::move(counts)) {}

bool CommunicatorQueue::run(Task task, Failed failed) {
  const std::lock_guard<std::mutex> lock(order_mutex_);
  if (tasks_.empty() && connected_.load() && device_api().async() && !ends_.gloo) {
    perform(task, failed);
    return true;
  }
  tasks_.emplace_back(std::move(task), std::move(failed));
  if (tasks_.size() == 1) {
    run_in_background([self = shared_from_this()] { self->run_queued(); });
  }
  return false;
}

void CommunicatorQueue::run_queued() {
  std::unique_lock<std::mutex> lock(order_mutex_);
  while (!tasks_.empty()) {
    auto& first = tasks_.front(); // stays there: others are appended
    lock.unlock();
    perform(first.first, first.second);
    first = {}; // it holds tensors, whose end may need locks
    lock.lock();
    tasks_.pop_front();
  }
}

void CommunicatorQueue::perform(const Task& task, const Failed& failed) {
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

void CommunicatorQueue::check_not_aborted() const {
  TORCH_CHECK(!aborted_.load(), "the process group was aborted");
}

Communicator& CommunicatorQueue::connected(const Stream& stream) {
  check_not_aborted();
  if (!connected_.load()) {
    std::unique_ptr<Communicator> comm;
    if (ends_.gloo) {
      comm = std::make_unique<gloo::GlooCommunicator>(stream, ends_.gloo, counts_);
    } else {
      const auto id = rendezvous(*ends_.store, ends_.key, {ends_.rank, ends_.size, ends_.timeout, &aborted_},
                                 ccl::create_unique_id);
      is_creating_.store(true); // before the last look at aborted_: one of the two sees the other
      check_not_aborted();
      comm = std::make_unique<ccl::CclCommunicator>(stream, ends_.rank, ends_.size, id, counts_);
    }
    const std::lock_guard<std::mutex> lock(comm_mutex_);
    is_creating_.store(false);
    check_not_aborted();
    comm_ = std::move(comm);
    connected_.store(true);
  }
  return *comm_;
}

void CommunicatorQueue::abort() {
  aborted_.store(true);
  const std::lock_guard<std::mutex> lock(comm_mutex_);
  if (comm_ ? !comm_->abort() : is_creating_.load()) {
    is_stuck_.store(true);
  }
}

std::exception_ptr CommunicatorQueue::error() {
  const std::lock_guard<std::mutex> lock(comm_mutex_);
  return comm_ && !aborted_.load() ? comm_->error() : nullptr;
}

bool CommunicatorQueue::is_idle() {
  const std::unique_lock<std::mutex> lock(order_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !tasks_.empty()) {
    return false;
  }
  return !stream_ || !device_api().async() || device_api().is_lost(device_) || stream_->get().query();
}

void CommunicatorQueue::close() {
  try {
    while (!is_idle() && !is_stuck_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception& error) {
    LOG(WARNING) << "While a communicator was closed: " << error.what();
  }
  if (is_stuck_.load()) {
    new std::shared_ptr<CommunicatorQueue>(shared_from_this()); // for the rest of the process
    return;
  }
  const std::lock_guard<std::mutex> lock(comm_mutex_);
  comm_.reset();
}

} // namespace torch_backend
