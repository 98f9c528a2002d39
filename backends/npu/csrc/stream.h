// Streams: AscendCL's, kept for the next one who asks, since one with pending work must not be destroyed.
#pragma once

#include <cstdint>

#include "acl.h"
#include "result.h"

struct tb_stream {
  int32_t device;
  int32_t priority;
  npu::acl_stream handle;
};

namespace npu {

// AscendCL's own stream; for NULL the device's default stream, which is made here when it is first needed. Pre: the calling
// thread is bound to the device.
result handle_of(int32_t device, tb_stream* stream, acl_stream* out_handle);

} // namespace npu
