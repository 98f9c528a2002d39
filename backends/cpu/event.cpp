#include "event.h"

#include <memory>
#include <mutex>

#include "graph.h"
#include "record.h"
#include "stream.h"

namespace xcpu {

// Both null: never recorded.
struct last_record {
  std::shared_ptr<record> made;
  std::shared_ptr<const captured_record> captured;
};

} // namespace xcpu

struct tb_event {
  const int32_t device;
  const uint32_t flags;
  std::mutex mutex; // guards last
  xcpu::last_record last;
};

namespace xcpu {
namespace {

result check_event(int32_t device, const tb_event* event) {
  if (event->device == device) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "an event of device %d is used as one of device %d", event->device,
                 device);
}

last_record last_of(tb_event* event) {
  const std::lock_guard<std::mutex> lock(event->mutex);
  return event->last;
}

// For the host's use of the event; what it asks for may be null.
result find_record(slot s, int32_t device, tb_event* event, std::shared_ptr<record>* out_record) {
  result r = check_event(device, event);
  if (!r.ok()) return r;
  const last_record last = last_of(event);
  *out_record = last.made;
  return last.captured ? refuse_captured(s, *last.captured) : result();
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
  last_record next{nullptr, capture_record(*q)};
  if (!next.captured) next.made = record::make(q);
  const std::lock_guard<std::mutex> lock(event->mutex);
  event->last = std::move(next);
  return {};
}

result event_query(int32_t device, tb_event* event) {
  std::shared_ptr<record> last;
  result r = find_record(slot::event_query, device, event, &last);
  if (!r.ok() || !last) return r;
  return last->done() ? last->take_failure() : result{TB_STATUS_NOT_READY, ""};
}

result event_synchronize(int32_t device, tb_event* event) {
  std::shared_ptr<record> last;
  result r = find_record(slot::event_synchronize, device, event, &last);
  if (!r.ok() || !last) return r;
  last->wait();
  return last->take_failure();
}

result event_elapsed(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed_ns) {
  std::shared_ptr<record> first, second;
  result r = find_record(slot::event_elapsed, device, start, &first);
  if (r.ok()) r = find_record(slot::event_elapsed, device, end, &second);
  if (!r.ok()) return r;
  if (!(start->flags & end->flags & TB_EVENT_TIMING))
    return failure(TB_STATUS_INVALID_ARGUMENT, "event_elapsed: both events must be created with TB_EVENT_TIMING");
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
  last_record last = last_of(event);
  if (!last.made && !last.captured) return {};
  bool captured = false;
  r = capture_wait(q, device, last.captured.get(), &captured);
  if (r.ok() && !captured) push_wait(*q, std::move(last.made));
  return r;
}

} // namespace xcpu
