#include "event.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "queue.h"
#include "stream.h"

namespace xcpu {
namespace {

// One record of an event. Whoever waits for it shares it: the event may be recorded again or destroyed meanwhile.
class record {
 public:
  static std::shared_ptr<record> make(const std::shared_ptr<queue>& on) {
    auto made = std::make_shared<record>();
    made->queue_ = on;
    made->place_ = on->push_brief([made] {
      made->complete();
      return result();
    });
    return made;
  }

  bool done() const {
    return done_.load(std::memory_order_acquire);
  }
  void wait() const {
    if (!done()) queue_->wait(place_);
  }

  // Both once done.
  int64_t time_ns() const {
    return time_ns_;
  }
  result take_failure() const {
    return failure_ ? failure_->take() : result();
  }

 private:
  // When everything before the record is done.
  void complete() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    time_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    failure_ = queue_->last_failure();
    done_.store(true, std::memory_order_release);
  }

  std::shared_ptr<queue> queue_;
  uint64_t place_ = 0;
  // Written before done_ is.
  int64_t time_ns_ = 0;
  std::shared_ptr<pending_failure> failure_; // of the stream, when the record completed
  std::atomic<bool> done_{false};
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
  std::shared_ptr<record> next = record::make(q);
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
  const auto wait = [last] {
    last->wait();
    return result();
  };
  if (last->done()) {
    q->push_brief(wait);
  } else {
    q->push(wait);
  }
  return {};
}

} // namespace xcpu
