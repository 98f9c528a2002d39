// The device slots.
#pragma once

#include "result.h"

namespace xcpu {

// INVALID_ARGUMENT unless there is such a device.
result check_device(int32_t device);

result device_count(int32_t* out_count);
result device_properties(int32_t device, tb_device_properties* out_properties);
result initialize();
result peer_can_access(int32_t device, int32_t peer, int32_t* out_can_access);

} // namespace xcpu
