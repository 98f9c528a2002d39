// Addresses that are reserved, and memory behind parts of them, for segments that grow.
#pragma once

#include <cstdint>

#include "result.h"

namespace npu {

// What memory is mapped in multiples of; 0 if this CANN, or its driver, cannot map memory. Pre: the calling thread is bound.
uint64_t commit_granularity(int32_t device);

result address_reserve(int32_t device, uint64_t size_bytes, void** out_ptr);
result address_release(int32_t device, void* ptr, uint64_t size_bytes);
result memory_commit(int32_t device, void* ptr, uint64_t size_bytes);
result memory_decommit(int32_t device, void* ptr, uint64_t size_bytes);

// Whether memory_commit has put memory there, of whatever device.
bool is_committed(const void* ptr);

} // namespace npu
