// Addresses that are reserved, and memory behind parts of them, for segments that grow.
#pragma once

#include "device.h"
#include "result.h"

namespace xcuda {

// What memory is created in multiples of; 0 if the device cannot map memory.
uint64_t commit_granularity(const device& d);

// Lets `reader` access what `d` has committed, and what it will commit.
result open_commits(device& d, const device& reader);

// If `ptr`, which `info` is about, is in a part of what was committed: all that it touches.
void describe_commits(const void* ptr, tb_pointer_info* info);

} // namespace xcuda
