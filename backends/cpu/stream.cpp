#include "stream.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "graph.h"
#include "loss.h"

namespace xcpu {
namespace {

struct device_queues {
  std::mutex mutex; // guards all below
  std::shared_ptr<queue> default_queue;
  std::vector<std::weak_ptr<queue>> queues; // until their worker is gone, so also those of destroyed streams
  uint32_t num_created = 0;
};

// Never destroyed: worker threads may outlast static destruction.
device_queues& queues_of(int32_t device) {
  static auto& all = *new std::array<device_queues, 64>;
  return all[device];
}

// With the mutex held.
std::shared_ptr<queue> start_queue(int32_t device, device_queues& d) {
  d.queues.erase(std::remove_if(d.queues.begin(), d.queues.end(), [](const auto& q) { return q.expired(); }),
                 d.queues.end());
  d.queues.reserve(d.queues.size() + 1);
  std::shared_ptr<queue> q = queue::start(1 + d.num_created++ * 64 + static_cast<uint32_t>(device));
  d.queues.push_back(q);
  return q;
}

std::shared_ptr<queue> default_queue(int32_t device) {
  device_queues& d = queues_of(device);
  const std::lock_guard<std::mutex> lock(d.mutex);
  if (!d.default_queue) d.default_queue = start_queue(device, d);
  return d.default_queue;
}

} // namespace

std::shared_ptr<queue> start_queue(int32_t device) {
  device_queues& d = queues_of(device);
  const std::lock_guard<std::mutex> lock(d.mutex);
  return start_queue(device, d);
}

result find_queue(int32_t device, tb_stream* stream, std::shared_ptr<queue>* out_queue) {
  if (stream && stream->device != device)
    return failure(TB_STATUS_INVALID_ARGUMENT, "a stream of device %d is used as one of device %d", stream->device,
                   device);
  *out_queue = stream ? stream->work : default_queue(device);
  return {};
}

result enqueue(slot s, int32_t device, tb_stream* stream, queue::work work, bool brief) {
  std::shared_ptr<queue> q;
  result r = find_queue(device, stream, &q);
  if (!r.ok()) return r;
  result fault = injected_fault(s, device);
  // "Unsupported" promises that nothing was enqueued; any other failure of a device shows when the work runs.
  if (fault.status == TB_STATUS_UNSUPPORTED || (!fault.ok() && is_captured(*q))) return fault;
  if (!fault.ok()) work = [fault] { return fault; };
  if (detail::faults_enabled) work = until_lost(device, std::move(work));
  if (capture_work(*q, work)) return {};
  if (brief) {
    q->push_brief(std::move(work));
  } else {
    q->push(std::move(work));
  }
  return {};
}

result stream_create(int32_t device, int32_t priority, tb_stream** out_stream) {
  if (priority > kLowestPriority || priority < kHighestPriority)
    return failure(TB_STATUS_INVALID_ARGUMENT, "stream_create: priority %d is not in %d (lowest) to %d (highest)",
                   priority, kLowestPriority, kHighestPriority);
  auto stream = std::make_unique<tb_stream>();
  stream->device = device;
  stream->work = start_queue(device);
  *out_stream = stream.release();
  return {};
}

result stream_destroy(int32_t device, tb_stream* stream) {
  if (!stream)
    return failure(TB_STATUS_INVALID_ARGUMENT, "stream_destroy: the default stream lives as long as the device");
  std::shared_ptr<queue> q;
  result r = find_queue(device, stream, &q);
  if (r.ok()) r = refuse_captured(slot::stream_destroy, *q);
  if (!r.ok()) return r;
  q->close();
  delete stream;
  return {};
}

result stream_synchronize(int32_t device, tb_stream* stream) {
  std::shared_ptr<queue> q;
  result r = find_queue(device, stream, &q);
  if (r.ok()) r = refuse_captured(slot::stream_synchronize, *q);
  return r.ok() ? q->synchronize() : r;
}

result stream_query(int32_t device, tb_stream* stream) {
  std::shared_ptr<queue> q;
  result r = find_queue(device, stream, &q);
  if (r.ok()) r = refuse_captured(slot::stream_query, *q);
  return r.ok() ? q->query() : r;
}

result stream_host_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  std::shared_ptr<queue> q;
  result r = find_queue(device, stream, &q);
  if (!r.ok()) return r;
  queue::work work = [fn, arg] {
    fn(arg);
    return result();
  };
  if (!capture_work(*q, work)) q->push(std::move(work));
  return {};
}

result device_synchronize(int32_t device) {
  result r = refuse_unsafe(slot::device_synchronize, device);
  if (!r.ok()) return r;
  std::vector<std::shared_ptr<queue>> all;
  {
    device_queues& d = queues_of(device);
    const std::lock_guard<std::mutex> lock(d.mutex);
    for (const std::weak_ptr<queue>& weak : d.queues)
      if (std::shared_ptr<queue> q = weak.lock()) all.push_back(std::move(q));
  }
  result first;
  for (const std::shared_ptr<queue>& q : all)
    if (result r = q->synchronize(); first.ok()) first = std::move(r);
  return first;
}

} // namespace xcpu
