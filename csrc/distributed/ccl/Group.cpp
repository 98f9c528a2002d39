#include "csrc/distributed/ccl/Group.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Runtime.h"
#include "csrc/distributed/Failure.h"

namespace torch_backend::ccl {
namespace {

constexpr int kAll = -1; // in place of the two ends, for the lane of collectives

std::exception_ptr error(const std::string& text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

/// Of an error that is part of another one, without its advice.
std::string first_line_of(const std::exception_ptr& cause) {
  const auto text = text_of(cause);
  return text.substr(0, text.find('\n'));
}

/// What says nothing about the communicator.
bool is_of_one_call(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const c10::NotImplementedError&) {
    return true;
  } catch (const c10::ValueError&) {
    return true;
  } catch (const c10::TypeError&) {
    return true;
  } catch (...) {
    return false;
  }
}

} // namespace

Group::Group(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

// ---- lanes ----

std::shared_ptr<Lane> Group::lane(c10::DeviceIndex device, int from, int to, std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& found = lanes_[{device, from, to}];
  if (!found) {
    // Ranks use devices of any index, but each its first, second, ... at the same time.
    const int number = num_lanes_[{from, to}]++;
    Lane::Ends ends{store_, "", rank_, size_, timeout};
    if (from == kAll) {
      ends.key = c10::str("ccl/all/", number);
    } else {
      ends.key = c10::str("ccl/", from, "to", to, "/", number);
      ends.rank = rank_ == from ? 0 : 1;
      ends.size = 2;
    }
    found = std::make_shared<Lane>(device, std::move(ends), calls_);
  }
  return found;
}

void Group::connect(c10::DeviceIndex device, std::chrono::milliseconds timeout) {
  auto self = shared_from_this();
  lane(device, kAll, kAll, timeout)
      ->run([](Communicator&, const Stream&) {}, [self](const std::exception_ptr& cause) { self->fail({}, cause); });
}

void Group::meet_on_store(std::chrono::milliseconds timeout) {
  int number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    number = num_meetings_++;
  }
  meet(*store_, c10::str("ccl/meeting/", number), {rank_, size_, timeout}, [] { return std::vector<uint8_t>{1}; });
}

// ---- work ----

void Group::refuse_if_failed(const CclWork& work) {
  std::exception_ptr failure;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure = failure_;
  }
  if (failure) {
    std::rethrow_exception(describe_collective_failure(
        error(c10::str("the process group does no more work: ", first_line_of(failure))), work.what(), rank_, size_));
  }
}

void Group::start(const c10::intrusive_ptr<CclWork>& work, c10::DeviceIndex device, std::chrono::milliseconds timeout,
                  Body body) {
  start_on(lane(device, kAll, kAll, timeout), work, std::move(body));
}

void Group::start_peer(const c10::intrusive_ptr<CclWork>& work, c10::DeviceIndex device,
                       std::chrono::milliseconds timeout, int peer, bool sends, Body body) {
  start_on(lane(device, sends ? rank_ : peer, sends ? peer : rank_, timeout), work, std::move(body));
}

void Group::start_on(const std::shared_ptr<Lane>& lane, const c10::intrusive_ptr<CclWork>& work, Body body) {
  refuse_if_failed(*work);
  take_ended();
  bool watch_now = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.push_back(work);
    watch_now = !std::exchange(is_watched_, true);
  }
  if (watch_now) {
    watch(shared_from_this());
  }
  auto self = shared_from_this();
  const bool has_run = lane->run(
      [work, body = std::move(body)](Communicator& comm, const Stream& stream) {
        work->ready().block(stream);
        Collectives collectives(comm);
        body(collectives);
        work->enqueued(stream);
      },
      [self, work](const std::exception_ptr& cause) { self->fail(work, cause); });
  if (has_run) {
    work->raise_failure();
  }
}

// ---- failure ----

bool Group::has_failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_ != nullptr;
}

bool Group::look() {
  std::vector<c10::intrusive_ptr<CclWork>> works;
  std::vector<std::shared_ptr<Lane>> lanes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    works = pending_;
    for (const auto& [key, lane] : lanes_) {
      lanes.push_back(lane);
    }
  }
  const auto now = std::chrono::steady_clock::now();
  for (const auto& work : works) {
    if (work->isCompleted()) {
      if (work->failed_on_device()) {
        fail(work, work->exception());
      }
    } else if (now >= work->deadline()) {
      fail(work, error(c10::str("timed out after ", work->time_limit().count(), " ms.")));
    }
  }
  for (const auto& lane : lanes) {
    if (const auto reported = lane->error()) {
      const auto running = std::find_if(works.begin(), works.end(), [](const auto& one) { return !one->has_ended(); });
      fail(running == works.end() ? c10::intrusive_ptr<CclWork>() : *running, reported);
    }
  }
  take_ended();
  const std::lock_guard<std::mutex> lock(mutex_);
  is_watched_ = !pending_.empty();
  return is_watched_;
}

void Group::take_ended() {
  std::vector<c10::intrusive_ptr<CclWork>> ended; // goes without the lock: tensors may need others for that
  const std::lock_guard<std::mutex> lock(mutex_);
  // A failure that the group has not heard of stays until look() has told it.
  const auto first_ended = std::stable_partition(pending_.begin(), pending_.end(), [this](const auto& one) {
    return !one->has_ended() || (one->failed_on_device() && !failure_);
  });
  ended.assign(first_ended, pending_.end());
  pending_.erase(first_ended, pending_.end());
}

void Group::fail(const c10::intrusive_ptr<CclWork>& first, const std::exception_ptr& cause) {
  if (first && is_of_one_call(cause)) {
    first->fail(cause);
    return;
  }
  const auto described =
      describe_collective_failure(cause, first ? first->what() : "connecting the ranks", rank_, size_);
  end_all(first, described, error(c10::str("other work of the process group has failed: ", first_line_of(described))));
}

void Group::abort() {
  const auto aborted = error("the process group was aborted");
  end_all({}, describe_collective_failure(aborted, "a collective", rank_, size_), aborted);
}

void Group::end_all(const c10::intrusive_ptr<CclWork>& first, const std::exception_ptr& described,
                    const std::exception_ptr& cause) {
  std::vector<c10::intrusive_ptr<CclWork>> works;
  std::vector<std::shared_ptr<Lane>> lanes;
  bool is_first = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_first = !failure_;
    if (is_first) {
      failure_ = described; // before the work ends: whoever waits for that finds later calls refused
      works = pending_;
      for (const auto& [key, lane] : lanes_) {
        lanes.push_back(lane);
      }
    }
  }
  if (first) {
    first->fail(described);
    works.push_back(first);
  }
  if (!is_first) {
    return;
  }
  for (const auto& work : works) {
    work->fail(cause);
  }
  const bool is_relied_on = std::any_of(works.begin(), works.end(),
                                        [](const auto& work) { return !work->isSuccess() && work->is_relied_on(); });
  // First known to the devices: whoever waits for one learns of it when the abort lets them go on.
  if (device_api().async() && is_relied_on) {
    for (const auto& lane : lanes) {
      record_async_error(lane->device().index(), described);
    }
  }
  for (const auto& lane : lanes) {
    lane->abort();
  }
}

void Group::close() {
  std::vector<std::shared_ptr<Lane>> lanes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, lane] : lanes_) {
      lanes.push_back(lane);
    }
  }
  for (const auto& lane : lanes) {
    lane->close();
  }
  // Work that nobody asked after would keep its tensors until somebody does.
  look();
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_.clear();
  if (!failure_) {
    failure_ = error("it was destroyed");
  }
}

} // namespace torch_backend::ccl
