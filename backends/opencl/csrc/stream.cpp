#include "stream.h"

#include <algorithm>

namespace ocl {
namespace {

result start_queue(device& d, std::shared_ptr<queue>* out_queue) {
  result r = queue::create(d, out_queue);
  if (!r.ok()) return r;
  const std::lock_guard<std::mutex> lock(d.mutex);
  d.queues.erase(std::remove_if(d.queues.begin(), d.queues.end(), [](const auto& q) { return q.expired(); }),
                 d.queues.end());
  d.queues.push_back(*out_queue);
  return r;
}

} // namespace

queue& queue_of(int32_t device, tb_stream* stream) {
  return stream ? *stream->work : *device_at(device).default_queue;
}

result start_default_queue(device& d) {
  return start_queue(d, &d.default_queue);
}

result stream_create(int32_t device, int32_t priority, tb_stream** out_stream) {
  if (priority != 0)
    return failure(TB_STATUS_INVALID_ARGUMENT, "stream_create: priority %d; there is only 0", priority);
  auto stream = std::make_unique<tb_stream>();
  result r = start_queue(device_at(device), &stream->work);
  if (r.ok()) *out_stream = stream.release();
  return r;
}

result stream_destroy(int32_t, tb_stream* stream) {
  if (!stream)
    return failure(TB_STATUS_INVALID_ARGUMENT, "stream_destroy: the default stream lives as long as the device");
  delete stream;
  return {};
}

result stream_synchronize(int32_t device, tb_stream* stream) {
  return queue_of(device, stream).synchronize();
}

result stream_query(int32_t device, tb_stream* stream) {
  return queue_of(device, stream).query();
}

// Not on a thread of the driver's: a callback of an event may be called by the thread that sets it, or by the only one that
// runs kernels.
result stream_host_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  return queue_of(device, stream).host_step("stream_host_function", [fn, arg] { fn(arg); });
}

result device_synchronize(int32_t device) {
  ocl::device& d = device_at(device);
  std::vector<std::shared_ptr<queue>> all;
  {
    const std::lock_guard<std::mutex> lock(d.mutex);
    for (const std::weak_ptr<queue>& weak : d.queues)
      if (std::shared_ptr<queue> q = weak.lock()) all.push_back(std::move(q));
  }
  result first;
  for (const std::shared_ptr<queue>& q : all)
    if (result r = q->synchronize(); first.ok()) first = std::move(r);
  return first;
}

} // namespace ocl
