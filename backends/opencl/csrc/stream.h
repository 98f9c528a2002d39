// Streams.
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

} // namespace ocl
