// Devices that are lost, which only injected faults bring about.
#pragma once

#include <cstdint>

#include "queue.h"

namespace xcpu {

// `work`, which does nothing and fails once the device is lost. For work that uses the host's memory: that of the device
// stays as it is.
queue::work until_lost(int32_t device, queue::work work);

// Called before a loss is first reported: on return nothing that until_lost made runs any more.
void lose(int32_t device);

} // namespace xcpu
