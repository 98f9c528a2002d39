#include "csrc/distributed/Group.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Runtime.h"
#include "csrc/distributed/Failure.h"
#include "csrc/distributed/Rendezvous.h"
#include "csrc/distributed/Watchdog.h"

namespace torch_backend {
namespace {

/// Each tag has a queue over Gloo. More than these stay only while they are busy.
constexpr std::size_t kMostIdleQueues = 64;

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

Group::Group(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<c10d::Backend> gloo)
    : store_(std::move(store)), rank_(rank), size_(size), over_gloo_(gloo != nullptr), gloo_(std::move(gloo)) {}

// ---- queues ----

Group::QueuePtr Group::queue(const char* what, c10::DeviceIndex device, const Route& route,
                             std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.empty()) {
    std::rethrow_exception(describe_collective_failure(
        error(c10::str("the process group does no more work: ", failure_)), what, rank_, size_));
  }
  if (const auto found = queues_.find({device, route}); found != queues_.end()) {
    return found->second;
  }
  CommunicatorQueue::Ends ends{gloo_, store_, "", rank_, size_, timeout};
  if (over_gloo_) {
    drop_idle_queues();
  } else {
    // Ranks use devices of any index, but each its first, second, ... at the same time.
    const int number = num_queues_[route]++;
    const bool is_peer = route.from >= 0;
    ends.key = is_peer ? c10::str("ccl/", route.from, "to", route.to, "/", number) : c10::str("ccl/all/", number);
    if (is_peer) {
      ends.rank = rank_ == route.from ? 0 : 1;
      ends.size = 2;
    }
  }
  return queues_[{device, route}] = std::make_shared<CommunicatorQueue>(device, std::move(ends), counts_);
}

void Group::drop_idle_queues() {
  for (auto it = queues_.begin(); queues_.size() >= kMostIdleQueues && it != queues_.end();) {
    it = it->second->is_idle() ? queues_.erase(it) : std::next(it);
  }
}

std::vector<Group::QueuePtr> Group::queues() {
  std::vector<QueuePtr> all;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, queue] : queues_) {
    all.push_back(queue);
  }
  return all;
}

void Group::connect(c10::DeviceIndex device, std::chrono::milliseconds timeout) {
  auto self = shared_from_this();
  queue("connecting the ranks", device, kCollectives, timeout)
      ->run([](Communicator&, const Stream&) {}, [self](const std::exception_ptr& cause) { self->fail({}, cause); });
}

void Group::rendezvous_on_store(std::chrono::milliseconds timeout) {
  int number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    number = num_rendezvous_++;
  }
  rendezvous(*store_, c10::str("ccl/rendezvous/", number), {rank_, size_, timeout},
             [] { return std::vector<uint8_t>{1}; });
}

// ---- work ----

void Group::start(const c10::intrusive_ptr<DeviceWork>& work, c10::DeviceIndex device,
                  std::chrono::milliseconds timeout, Body body) {
  start_on(queue(work->what(), device, kCollectives, timeout), work, std::move(body));
}

void Group::start_peer(const c10::intrusive_ptr<DeviceWork>& work, const at::Tensor& tensor,
                       std::chrono::milliseconds timeout, int peer, int tag, bool sends) {
  const auto device = tensor.device().index();
  const Route route{sends ? rank_ : peer, sends ? peer : rank_, over_gloo_ ? tag : 0};
  const int other = over_gloo_ ? peer : sends ? 1 : 0; // in the numbers of the queue
  Body body;
  if (sends) {
    body = [=](Collectives& collectives, Staging& staging) { collectives.send(staging.read(tensor), other, tag); };
  } else {
    body = [=](Collectives& collectives, Staging& staging) {
      const int source = collectives.recv(staging.write(tensor), other, tag);
      work->set_source(peer == kAnyRank ? source : peer);
    };
  }
  start_on(queue(work->what(), device, route, timeout), work, std::move(body));
}

void Group::start_on(const QueuePtr& queue, const c10::intrusive_ptr<DeviceWork>& work, Body body) {
  take_ended();
  bool watch_now = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.push_back(work);
    watch_now = !std::exchange(is_watched_, true);
  }
  if (watch_now) {
    watch([weak = weak_from_this()](bool a_wait_has_failed) {
      const auto self = weak.lock();
      return self && self->poll(a_wait_has_failed);
    });
  }
  auto self = shared_from_this();
  const bool has_run = queue->run(
      [work, body = std::move(body)](Communicator& comm, const Stream& stream) {
        work->ready().block(stream);
        Collectives collectives(comm);
        Staging staging;
        body(collectives, staging);
        staging.deliver();
        if (work->completes_on_host()) {
          stream.synchronize();
        }
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
  return !failure_.empty();
}

void Group::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gloo_) {
    gloo_->setTimeout(timeout);
  }
}

bool Group::poll(bool a_wait_has_failed) {
  std::vector<c10::intrusive_ptr<DeviceWork>> works;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    works = pending_;
  }
  const auto tell_of_communicators = [&] {
    for (const auto& queue : queues()) {
      if (const auto reported = queue->error()) {
        const auto running =
            std::find_if(works.begin(), works.end(), [](const auto& one) { return !one->has_ended(); });
        fail(running == works.end() ? c10::intrusive_ptr<DeviceWork>() : *running, reported);
      }
    }
  };
  if (a_wait_has_failed) {
    tell_of_communicators(); // before the works' events, which say nothing of a failure that the wait was told of
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
  tell_of_communicators();
  take_ended();
  const std::lock_guard<std::mutex> lock(mutex_);
  is_watched_ = !pending_.empty();
  return is_watched_;
}

void Group::take_ended() {
  std::vector<c10::intrusive_ptr<DeviceWork>> ended; // goes without the lock: tensors may need others for that
  const std::lock_guard<std::mutex> lock(mutex_);
  // A failure that the group has not heard of stays until poll() has told it.
  const auto first_ended = std::stable_partition(pending_.begin(), pending_.end(), [this](const auto& one) {
    return !one->has_ended() || (one->failed_on_device() && failure_.empty());
  });
  ended.assign(first_ended, pending_.end());
  pending_.erase(first_ended, pending_.end());
}

void Group::fail(const c10::intrusive_ptr<DeviceWork>& first, const std::exception_ptr& cause) {
  if (first && is_of_one_call(cause)) {
    first->fail(cause);
    return;
  }
  const auto described =
      describe_collective_failure(cause, first ? first->what() : "connecting the ranks", rank_, size_);
  const auto text = first_line_of(described);
  end_all(first, described, error("other work of the process group has failed: " + text), text);
}

void Group::abort() {
  const auto aborted = error("the process group was aborted");
  end_all({}, describe_collective_failure(aborted, "a collective", rank_, size_), aborted, "it was aborted");
}

void Group::end_all(const c10::intrusive_ptr<DeviceWork>& first, const std::exception_ptr& described,
                    const std::exception_ptr& cause, const std::string& text) {
  std::vector<c10::intrusive_ptr<DeviceWork>> works;
  bool is_first = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_first = failure_.empty();
    if (is_first) {
      failure_ = text; // before the work ends: whoever waits for that finds later calls refused
      works = pending_;
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
    for (const auto& queue : queues()) {
      record_async_error(queue->device().index(), described);
    }
  }
  for (const auto& queue : queues()) {
    queue->abort();
  }
}

void Group::close() {
  for (const auto& queue : queues()) {
    queue->close();
  }
  // Work that nobody asked after would keep its tensors until somebody does.
  poll(/*a_wait_has_failed=*/false);
  c10::intrusive_ptr<c10d::Backend> gloo; // goes without the lock
  std::map<std::pair<c10::DeviceIndex, Route>, QueuePtr> queues;
  const std::lock_guard<std::mutex> lock(mutex_);
  gloo.swap(gloo_);
  queues.swap(queues_);
  if (failure_.empty()) {
    failure_ = "it was destroyed";
  }
}

} // namespace torch_backend
