// The stream slots. Each stream, the default streams among them, is a queue with its own worker thread.
#pragma once

#include <memory>
#include <utility>

#include "fault.h"
#include "options.h"
#include "queue.h"
#include "result.h"

struct tb_stream {
  int32_t device;
  std::shared_ptr<xcpu::queue> work;
};

namespace xcpu {

// Accepted and checked; all streams are served alike.
constexpr int32_t kLowestPriority = 0, kHighestPriority = -1;

// The queue of `stream`, which may be null: the default stream of `device`.
result find_queue(int32_t device, tb_stream* stream, std::shared_ptr<queue>* out_queue);

// Another queue of the device's, which device_synchronize waits for too.
std::shared_ptr<queue> start_queue(int32_t device);

result enqueue(slot s, int32_t device, tb_stream* stream, queue::work work, bool brief);

// Runs `work` now, or enqueues it if the device is asynchronous. `brief`: see queue::push_brief.
template <typename Work>
result run_on_stream(slot s, int32_t device, tb_stream* stream, bool brief, Work work) {
  if (settings().async) return enqueue(s, device, stream, std::move(work), brief);
  result r = injected_fault(s, device);
  return r.ok() ? work() : r;
}

result stream_create(int32_t device, int32_t priority, tb_stream** out_stream);
result stream_destroy(int32_t device, tb_stream* stream);
result stream_synchronize(int32_t device, tb_stream* stream);
result stream_query(int32_t device, tb_stream* stream);
result stream_host_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg);
result device_synchronize(int32_t device);

} // namespace xcpu
