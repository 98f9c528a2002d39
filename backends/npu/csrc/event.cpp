#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "acl.h"
#include "result.h"
#include "stream.h"

struct tb_event {
  int32_t device;
  uint32_t flags;
  npu::acl_event handle;
  std::atomic<bool> recorded{false}; // AscendCL does not answer for one that never was
};

namespace npu {
namespace {

// One that something may still wait for must not be destroyed: they are kept for the next one who asks.
struct unused_events {
  std::mutex mutex; // guards events
  std::vector<tb_event*> events;
};

unused_events& unused() {
  static auto& u = *new unused_events;
  return u;
}

tb_event* take_unused(int32_t device, uint32_t flags) {
  const std::lock_guard<std::mutex> lock(unused().mutex);
  auto& events = unused().events;
  const auto found = std::find_if(events.begin(), events.end(),
                                  [&](const tb_event* e) { return e->device == device && e->flags == flags; });
  if (found == events.end()) return nullptr;
  tb_event* event = *found;
  events.erase(found);
  event->recorded = false;
  return event;
}

} // namespace

result event_create(int32_t device, uint32_t flags, tb_event** out_event) {
  if (flags & ~TB_EVENT_TIMING)
    return failure(TB_STATUS_UNSUPPORTED, "event_create: flags %u; only TB_EVENT_TIMING is offered", flags);
  if (tb_event* event = take_unused(device, flags)) {
    *out_event = event;
    return {};
  }
  auto event = std::unique_ptr<tb_event>(new tb_event{device, flags, nullptr});
  const uint32_t acl_flags = kAclEventSync | (flags & TB_EVENT_TIMING ? kAclEventTimeline : 0);
  result r = check(acl.aclrtCreateEventExWithFlag(&event->handle, acl_flags), "aclrtCreateEventExWithFlag");
  if (r.ok()) *out_event = event.release();
  return r;
}

result event_destroy(int32_t, tb_event* event) {
  const std::lock_guard<std::mutex> lock(unused().mutex);
  unused().events.push_back(event);
  return {};
}

result event_record(int32_t device, tb_event* event, tb_stream* stream) {
  if (event->device != device)
    return failure(TB_STATUS_INVALID_ARGUMENT, "an event of device %d is recorded on a stream of device %d",
                   event->device, device);
  acl_stream handle = nullptr;
  result r = handle_of(device, stream, &handle);
  if (r.ok()) r = check(acl.aclrtRecordEvent(event->handle, handle), "aclrtRecordEvent");
  if (r.ok()) event->recorded = true;
  return r;
}

result stream_wait_event(int32_t device, tb_stream* stream, tb_event* event) {
  if (!event->recorded) return {};
  acl_stream handle = nullptr;
  result r = handle_of(device, stream, &handle);
  return r.ok() ? check(acl.aclrtStreamWaitEvent(handle, event->handle), "aclrtStreamWaitEvent") : r;
}

result event_query(int32_t, tb_event* event) {
  if (!event->recorded) return {};
  int status = 0;
  result r = check(acl.aclrtQueryEventStatus(event->handle, &status), "aclrtQueryEventStatus");
  if (!r.ok()) return r;
  return {status == kAclEventComplete ? TB_STATUS_OK : TB_STATUS_NOT_READY, ""};
}

result event_synchronize(int32_t, tb_event* event) {
  if (!event->recorded) return {};
  return check(acl.aclrtSynchronizeEvent(event->handle), "aclrtSynchronizeEvent");
}

result event_elapsed(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed_ns) {
  if (start->device != device || end->device != device || !(start->flags & end->flags & TB_EVENT_TIMING))
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "event_elapsed: both events must be of device %d and created with TB_EVENT_TIMING", device);
  if (!start->recorded || !end->recorded)
    return failure(TB_STATUS_INVALID_ARGUMENT, "event_elapsed: both events must have been recorded");
  for (tb_event* event : {start, end})
    if (result r = event_query(device, event); r.status != TB_STATUS_OK) return r;
  float ms = 0;
  result r = check(acl.aclrtEventElapsedTime(&ms, start->handle, end->handle), "aclrtEventElapsedTime");
  if (r.ok()) *out_elapsed_ns = std::llround(static_cast<double>(ms) * 1e6);
  return r;
}

} // namespace npu
