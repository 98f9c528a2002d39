// Drivers that are asked for their devices in a process of their own.
#pragma once

#include "result.h"

namespace plugin {

// What `count` gives in a child process, which leaves this one free of the driver's threads (it may still fork) and
// outlives a driver that crashes or hangs: `crashed` is then the failure's text. Waits for a minute at most.
result count_in_child(result (*count)(int32_t* out_count), const char* crashed, int32_t* out_count);

} // namespace plugin
