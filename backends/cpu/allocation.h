// Every live allocation of the plugin: who owns an address, how full a device is, and, in protected mode, who has
// access.
#pragma once

#include <cstdint>

#include "result.h"

namespace xcpu {

struct allocation {
  void* base;
  uint64_t size_bytes;
  uint32_t kind; // TB_MEMORY_*
  int32_t device;
};

result allocation_create(int32_t device, uint32_t kind, uint64_t size_bytes, void** out_ptr);
result allocation_destroy(const allocation& a);

// The allocation `ptr` points into; false if there is none.
bool allocation_find(const void* ptr, allocation* out_allocation);

uint64_t allocated_bytes(int32_t device);

// Addresses of a device, and memory behind multiples of kHugePage of them (TB_CAP_VIRTUAL_MEMORY). What is committed
// without a gap is one allocation.
result reservation_create(int32_t device, uint64_t size_bytes, void** out_ptr);
result reservation_destroy(int32_t device, void* base, uint64_t size_bytes);
result reservation_commit(int32_t device, void* ptr, uint64_t size_bytes);
result reservation_decommit(int32_t device, void* ptr, uint64_t size_bytes);

// Memory for other processes, and of other processes (xcpu.ipc). What is imported counts towards no limit, is live until
// allocation_close, and stays there if its exporter ends.
result allocation_export(int32_t device, void* base, tb_ipc_handle* out_handle);
result allocation_import(int32_t device, const tb_ipc_handle& handle, void** out_ptr);
result allocation_close(int32_t device, void* base);

// Let the host read or write (TB_MAP_*) a range of device memory, until access_end with the same arguments.
// Pairs nest and overlap. Only in protected mode.
result access_begin(int32_t device, const void* ptr, uint64_t size_bytes, uint32_t access);
result access_end(int32_t device, const void* ptr, uint64_t size_bytes, uint32_t access);

} // namespace xcpu
