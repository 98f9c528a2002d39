#include <atomic>
#include <cmath>

#include "device.h"
#include "graph.h"
#include "result.h"
#include "stream.h"

struct tb_event {
  const int32_t device;
  const uint32_t flags;
  const xcuda::CUevent handle;
  std::atomic<bool> recorded{false};
};

namespace xcuda {

result event_create(int32_t device, uint32_t flags, tb_event** out_event) {
  if (flags & ~TB_EVENT_TIMING)
    return failure(TB_STATUS_UNSUPPORTED, "event_create: flags %u; only TB_EVENT_TIMING is offered", flags);
  CUevent handle = nullptr;
  result r = call_on(device_at(device), "event_create",
                     [&] { return cu.EventCreate(&handle, flags & TB_EVENT_TIMING ? 0 : kCU_EVENT_DISABLE_TIMING); });
  if (r.ok()) *out_event = new tb_event{device, flags, handle};
  return r;
}

result event_destroy(int32_t device, tb_event* event) {
  result r = call_on(device_at(device), "event_destroy", [&] { return cu.EventDestroy(event->handle); });
  delete event;
  return r;
}

result event_record(int32_t device, tb_event* event, tb_stream* stream) {
  if (event->device != device)
    return failure(TB_STATUS_INVALID_ARGUMENT, "an event of device %d is recorded on a stream of device %d",
                   event->device, device);
  result r =
      call_on(device_at(device), "event_record", [&] { return cu.EventRecord(event->handle, handle_of(stream)); });
  if (r.ok()) event->recorded = true;
  return r;
}

result event_query(int32_t, tb_event* event) {
  return call_on(device_at(event->device), "event_query", [&] { return cu.EventQuery(event->handle); });
}

result event_synchronize(int32_t, tb_event* event) {
  return call_on(device_at(event->device), "event_synchronize", [&] { return cu.EventSynchronize(event->handle); });
}

result event_elapsed(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed_ns) {
  if (start->device != device || end->device != device || !(start->flags & end->flags & TB_EVENT_TIMING))
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "event_elapsed: both events must be of device %d and created with TB_EVENT_TIMING", device);
  if (!start->recorded || !end->recorded)
    return failure(TB_STATUS_INVALID_ARGUMENT, "event_elapsed: both events must have been recorded");
  float milliseconds = 0;
  result r = call_on(device_at(device), "event_elapsed",
                     [&] { return cu.EventElapsedTime(&milliseconds, start->handle, end->handle); });
  if (r.ok()) *out_elapsed_ns = std::llround(static_cast<double>(milliseconds) * 1e6);
  return r;
}

// The driver refuses captured streams what was never recorded, which counts as complete.
result stream_wait_event(int32_t device, tb_stream* stream, tb_event* event) {
  if (!event->recorded) return {};
  return wait_for_event(device_at(device), handle_of(stream), event->handle);
}

} // namespace xcuda
