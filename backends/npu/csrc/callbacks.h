// Host functions: AscendCL hands them to a thread of ours, which asks for them.
#pragma once

#include <cstdint>

#include "acl.h"
#include "result.h"

namespace npu {

// Enqueues the function. UNSUPPORTED where CANN has no callbacks. Pre: the calling thread is bound to the device.
result launch_callback(int32_t device, acl_stream stream, void (*function)(void*), void* argument);

} // namespace npu
