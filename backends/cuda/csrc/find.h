// How many devices there are.
#pragma once

#include "result.h"

namespace xcuda {

// This process can still fork afterwards: a driver that it has not started is asked in a child process. Fails if
// there are none, with the reason.
result count_devices(int32_t* out_count);

} // namespace xcuda
