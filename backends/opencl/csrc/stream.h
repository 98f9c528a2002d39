// The stream slots.
#pragma once

#include <memory>

#include "queue.h"
#include "result.h"

struct tb_stream {
  std::shared_ptr<ocl::queue> work;
};

namespace ocl {

// The queue of `stream`, which may be null: the default stream of `device`. Valid as long as the stream.
queue& queue_of(int32_t device, tb_stream* stream);

// Pre: the device was opened. Starts its default stream.
result start_default_queue(device& d);

result stream_create(int32_t device, int32_t priority, tb_stream** out_stream);
result stream_destroy(int32_t device, tb_stream* stream);
result stream_synchronize(int32_t device, tb_stream* stream);
result stream_query(int32_t device, tb_stream* stream);
result stream_host_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg);
result device_synchronize(int32_t device);

} // namespace ocl
