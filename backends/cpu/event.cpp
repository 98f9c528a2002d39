#include "event.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "queue.h"
#include "stream.h"

namespace xcpu {
namespace {

// One record of an event. Whoever waits for it shares it: the event may be recorded again or destroyed meanwhile.
class record {
 public:
  // On the worker, when everything before the record is done.
  void complete(std::shared_ptr<pending_failure> failure) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
      time_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
      failure_ = std::move(failure);
    }
    completed_.notify_all();
  }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    completed_.wait(lock, [this] { return done_; });
  }

  bool done() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return done_;
  }

  // Both once done.
  int64_t time_ns() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return time_ns_;
  }
  result take_failure() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_ ? failure_->take() : result();
  }

 private:
  std::mutex mutex_; // guards all below
  std::condition_variable completed_;
  bool done_ = false;
  int64_t time_ns_ = 0;
  std::shared_ptr<pending_failure> failure_; // of the stream, when the record completed
};

} // namespace
} // namespace xcpu

struct tb_event {
  const int32_t device;
  const uint32_t flags;
  std::mutex mutex;                   // guards last
  std::shared_ptr<xcpu::record> last; // null: never recorded
};

namespace xcpu {
namespace {

result check_event(int32_t device, const tb_event* event) {
  if (event->device == device) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "an event of device %d is used as one of device %d", event->device,
                 device);
}

std::shared_ptr<record> last_record(tb_event* event) {
  const std::lock_guard<std::mutex> lock(event->mutex);
  return event->last;
}

} // namespace

result event_create(int32_t device, uint32_t flags, tb_event** out_event) {
  if (flags & ~TB_EVENT_TIMING)
    return failure(TB_STATUS_UNSUPPORTED, "event_create: flags %u; only TB_EVENT_TIMING is offered", flags);
  *out_event = new tb_event{device, flags, {}, {}};
  return {};
}

result event_destroy(int32_t device, tb_event* event) {
  result r = check_event(device, event);
  if (r.ok()) delete event;
  return r;
}

result event_record(int32_t device, tb_event* event, tb_stream* stream) {
  result r = check_event(device, event);
  if (!r.ok()) return r;
  std::shared_ptr<queue> q;
  r = find_queue(device, stream, &q);
  if (!r.ok()) return r;
  auto next = std::make_shared<record>();
  // A plain pointer: a queue that its own work owned would never go.
  q->push([next, on = q.get()] {
    next->complete(on->last_failure());
    return result();
  });
  const std::lock_guard<std::mutex> lock(event->mutex);
  event->last = std::move(next);
  return {};
}

result event_query(int32_t device, tb_event* event) {
  result r = check_event(device, event);
  if (!r.ok()) return r;
  const std::shared_ptr<record> last = last_record(event);
  if (!last) return {};
  return last->done() ? last->take_failure() : result{TB_STATUS_NOT_READY, ""};
}

result event_synchronize(int32_t device, tb_event* event) {
  result r = check_event(device, event);
  if (!r.ok()) return r;
  const std::shared_ptr<record> last = last_record(event);
  if (!last) return {};
  last->wait();
  return last->take_failure();
}

result event_elapsed(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed_ns) {
  for (const tb_event* event : {start, end})
    if (result r = check_event(device, event); !r.ok()) return r;
  if (!(start->flags & end->flags & TB_EVENT_TIMING))
    return failure(TB_STATUS_INVALID_ARGUMENT, "event_elapsed: both events must be created with TB_EVENT_TIMING");
  const std::shared_ptr<record> first = last_record(start), second = last_record(end);
  if (!first || !second)
    return failure(TB_STATUS_INVALID_ARGUMENT, "event_elapsed: both events must have been recorded");
  if (!first->done() || !second->done()) return {TB_STATUS_NOT_READY, ""};
  *out_elapsed_ns = second->time_ns() - first->time_ns();
  return {};
}

result stream_wait_event(int32_t device, tb_stream* stream, tb_event* event) {
  std::shared_ptr<queue> q;
  result r = find_queue(device, stream, &q);
  if (!r.ok()) return r;
  const std::shared_ptr<record> last = last_record(event);
  if (!last) return {};
  q->push([last] {
    last->wait();
    return result();
  });
  return {};
}

} // namespace xcpu
