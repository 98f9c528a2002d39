// What the simulated libhccl has of the simulated libopapi.
#pragma once

#include <cstdint>

#include "runtime.h"

namespace sim {

// 0 for what is no dtype.
SIM_SHARED uint64_t item_bytes(int acl_dtype);

// to += from, or *, the greater or the less of both: 0 to 3, as HCCL counts.
SIM_SHARED void fold(char* to, const char* from, uint64_t count, int acl_dtype, int reduction);

} // namespace sim
