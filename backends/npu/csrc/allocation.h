// Memory: of the device, and page-locked memory of the host.
#pragma once

#include <cstdint>

#include "result.h"

namespace npu {

result memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream* stream, void** out_ptr);
result memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream);
result memory_info(int32_t device, uint64_t* out_free_bytes, uint64_t* out_total_bytes);

// Whether memory_allocate has page-locked the whole range.
bool is_page_locked(const void* ptr, uint64_t size_bytes);

} // namespace npu
