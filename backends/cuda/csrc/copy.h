// Copies and fills.
#pragma once

#include "result.h"

namespace xcuda {

result memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                   uint32_t kind, tb_stream* stream);
result memory_copy_2d(int32_t device, void* dst, uint64_t dst_pitch_bytes, const void* src, uint64_t src_pitch_bytes,
                      uint64_t width_bytes, uint64_t height, uint32_t kind, tb_stream* stream);
result memory_fill(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                   tb_stream* stream);

} // namespace xcuda
