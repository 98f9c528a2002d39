// What the ranks of a communicator are told so that they find each other: the name of their shared memory.
#pragma once

#include <string>

#include "../result.h"

namespace xcpu::ccl {

constexpr size_t kUniqueIdBytes = 64;

// Random, so that it is not guessed and not given twice.
result unique_id_create(void* out_unique_id);

// INVALID_ARGUMENT unless it is an id that unique_id_create wrote.
result segment_name(const void* unique_id, std::string* out_name);

} // namespace xcpu::ccl
