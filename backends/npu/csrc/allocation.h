// Memory: of the device, and page-locked memory of the host.
#pragma once

#include <cstdint>

#include "result.h"

namespace npu {

// Whether memory_allocate has page-locked the whole range.
bool is_page_locked(const void* ptr, uint64_t size_bytes);

} // namespace npu
