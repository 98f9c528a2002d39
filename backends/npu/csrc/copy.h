// Copies and fills.
#pragma once

#include "result.h"

namespace npu {

result memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                   uint32_t kind, tb_stream* stream);
result memory_fill(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                   tb_stream* stream);

} // namespace npu
