// The memory slots but copies.
#pragma once

#include "result.h"

namespace xcpu {

result memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream* stream, void** out_ptr);
result memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream);
result memory_info(int32_t device, uint64_t* out_free_bytes, uint64_t* out_total_bytes);
result memory_query(const void* ptr, tb_pointer_info* out_info);
result memory_map(int32_t device, void* ptr, uint64_t size_bytes, uint32_t access);
result memory_unmap(int32_t device, void* ptr, uint64_t size_bytes, uint32_t access);
result ipc_export(int32_t device, void* ptr, tb_ipc_handle* out_handle);
result ipc_import(int32_t device, const tb_ipc_handle* handle, void** out_ptr);
result ipc_close(int32_t device, void* ptr);
result address_reserve(int32_t device, uint64_t size_bytes, void** out_ptr);
result address_release(int32_t device, void* ptr, uint64_t size_bytes);
result memory_commit(int32_t device, void* ptr, uint64_t size_bytes);
result memory_decommit(int32_t device, void* ptr, uint64_t size_bytes);

} // namespace xcpu
