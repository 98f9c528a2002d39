// Memory from the operating system.
#pragma once

#include <cstdint>

namespace xcpu {

constexpr uint64_t kAlignment = 64;

// `own_pages`: the region shares no page with anything else, and is not accessible until region_protect.
// Null if there is none left.
void* region_allocate(uint64_t size_bytes, bool own_pages);

// With the arguments of the allocation.
void region_free(void* ptr, uint64_t size_bytes, bool own_pages);

// Of a region with own pages.
void region_protect(void* ptr, uint64_t size_bytes, bool readable, bool writable);

} // namespace xcpu
