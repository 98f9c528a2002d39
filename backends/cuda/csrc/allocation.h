// The memory slots but copies and fills.
#pragma once

#include "result.h"

namespace xcuda {

result memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream* stream, void** out_ptr);
result memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream);
result memory_info(int32_t device, uint64_t* out_free_bytes, uint64_t* out_total_bytes);
result memory_query(const void* ptr, tb_pointer_info* out_info);
result host_register(void* ptr, uint64_t size_bytes);
result host_unregister(void* ptr);

} // namespace xcuda
