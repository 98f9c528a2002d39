// The stream slots.
#pragma once

#include <memory>

#include "cu.h"
#include "result.h"

namespace xcuda {
class host_lane;
}

struct tb_stream {
  const int32_t device;
  const xcuda::CUstream handle;
  const std::shared_ptr<xcuda::host_lane> lane;
};

namespace xcuda {

inline CUstream handle_of(const tb_stream* stream) {
  return stream ? stream->handle : nullptr;
}

result stream_create(int32_t device, int32_t priority, tb_stream** out_stream);
result stream_destroy(int32_t device, tb_stream* stream);
result stream_synchronize(int32_t device, tb_stream* stream);
result stream_query(int32_t device, tb_stream* stream);
result stream_host_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg);

} // namespace xcuda
