// Device memory that other processes can map (xcpu.ipc): ranges of a file without a name, which goes with the last
// process that has it open or mapped, however that ends.
#pragma once

#include <cstdint>

#include "result.h"

namespace xcpu {

// Null if the system has no more. `accessible`: else neither readable nor writable until region_protect.
// `out_offset` is where the range lies in the file; no two ranges of a process ever have the same.
void* shared_allocate(uint64_t size_bytes, bool accessible, uint64_t* out_offset);

// What shared_allocate returned. Other processes that have it mapped read zeros from here on.
void shared_free(void* ptr, uint64_t size_bytes, uint64_t offset);

result shared_export(int32_t device, uint64_t size_bytes, uint64_t offset, tb_ipc_handle* out_handle);

// Map what a process, this one or another, has exported. Fails if it is no longer there.
result shared_import(int32_t device, const tb_ipc_handle& handle, bool accessible, void** out_ptr,
                     uint64_t* out_size_bytes);
void shared_unmap(void* ptr, uint64_t size_bytes);

} // namespace xcpu
