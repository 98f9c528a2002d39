#include <memory>
#include <mutex>

#include "result.h"
#include "stream.h"

namespace ocl {
namespace {

struct record {
  record(std::shared_ptr<queue> q, cl_event marker, uint64_t number)
      : made_on(std::move(q)), marker(marker), number(number) {}

  bool done() const {
    return marker.status() <= CL_COMPLETE;
  }
  // Pre: done.
  result take_failure() const {
    return made_on->take_failure(number);
  }

  const std::shared_ptr<queue> made_on;
  const event_reference marker;
  const uint64_t number; // of the queue's commands before it
};

} // namespace
} // namespace ocl

struct tb_event {
  const int32_t device;
  const uint32_t flags;
  std::mutex mutex;                  // guards last
  std::shared_ptr<ocl::record> last; // null: never recorded
};

namespace ocl {
namespace {

std::shared_ptr<record> last_of(tb_event* event) {
  const std::lock_guard<std::mutex> lock(event->mutex);
  return event->last;
}

void wait(const record& r) {
  const cl_event marker = r.marker.get();
  cl.WaitForEvents(1, &marker); // its error is one of the queue's commands
}

result time_of(const record& r, cl_ulong* out_ns) {
  return check(cl.GetEventProfilingInfo(r.marker.get(), CL_PROFILING_COMMAND_END, sizeof *out_ns, out_ns, nullptr),
               "event_elapsed");
}

} // namespace

result event_create(int32_t device, uint32_t flags, tb_event** out_event) {
  if (flags & ~TB_EVENT_TIMING)
    return failure(TB_STATUS_UNSUPPORTED, "event_create: flags %u; only TB_EVENT_TIMING is offered", flags);
  *out_event = new tb_event{device, flags, {}, {}};
  return {};
}

result event_destroy(int32_t, tb_event* event) {
  delete event;
  return {};
}

result event_record(int32_t device, tb_event* event, tb_stream* stream) {
  if (event->device != device)
    return failure(TB_STATUS_INVALID_ARGUMENT, "an event of device %d is recorded on a stream of device %d",
                   event->device, device);
  queue& q = queue_of(device, stream);
  cl_event marker = nullptr;
  uint64_t number = 0;
  result r = q.mark(&marker, &number);
  if (!r.ok()) return r;
  auto next = std::make_shared<record>(q.shared_from_this(), marker, number);
  const std::lock_guard<std::mutex> lock(event->mutex);
  event->last = std::move(next);
  return r;
}

result event_query(int32_t, tb_event* event) {
  const std::shared_ptr<record> last = last_of(event);
  if (!last) return {};
  return last->done() ? last->take_failure() : result{TB_STATUS_NOT_READY, ""};
}

result event_synchronize(int32_t, tb_event* event) {
  const std::shared_ptr<record> last = last_of(event);
  if (!last) return {};
  wait(*last);
  return last->take_failure();
}

result event_elapsed(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed_ns) {
  if (!(device_at(device).properties.capabilities & TB_CAP_EVENT_TIMING))
    return failure(TB_STATUS_UNSUPPORTED, "this OpenCL driver does not time markers");
  if (start->device != device || end->device != device || !(start->flags & end->flags & TB_EVENT_TIMING))
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "event_elapsed: both events must be of device %d and created with TB_EVENT_TIMING", device);
  const std::shared_ptr<record> first = last_of(start), second = last_of(end);
  if (!first || !second)
    return failure(TB_STATUS_INVALID_ARGUMENT, "event_elapsed: both events must have been recorded");
  if (!first->done() || !second->done()) return {TB_STATUS_NOT_READY, ""};
  cl_ulong from = 0, to = 0;
  result r = time_of(*first, &from);
  if (r.ok()) r = time_of(*second, &to);
  if (r.ok()) *out_elapsed_ns = static_cast<int64_t>(to) - static_cast<int64_t>(from);
  return r;
}

result stream_wait_event(int32_t device, tb_stream* stream, tb_event* event) {
  std::shared_ptr<record> last = last_of(event);
  queue& q = queue_of(device, stream);
  // A failure of what has run is for who waits for it, and does not go to other streams.
  if (!last || last->made_on.get() == &q || last->done()) return {};
  if (event->device == device) return q.wait_for("stream_wait_event", last->marker.get());
  return q.host_step("stream_wait_event", [last = std::move(last)] { wait(*last); }); // another context
}

} // namespace ocl
