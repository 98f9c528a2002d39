// Addresses that are reserved, and memory behind parts of them, for segments that grow.
#pragma once

#include <cstdint>

#include "result.h"

namespace npu {

// What memory is mapped in multiples of; 0 if this CANN, or its driver, cannot map memory. Pre: the calling thread is bound.
uint64_t commit_granularity(int32_t device);

// Whether memory_commit has put memory there, of whatever device.
bool is_committed(const void* ptr);

} // namespace npu
