// Memory from the operating system.
#pragma once

#include <cstdint>

namespace xcpu {

constexpr uint64_t kAlignment = 64;

// From this size on a region is aligned to huge pages and asks for them: one page fault instead of 512 on first use.
constexpr uint64_t kHugePage = 2ull << 20;

// Below 2^62 no sum or rounding of sizes overflows.
constexpr uint64_t kLargestRegion = 1ull << 61;

uint64_t page_bytes();

inline uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

inline bool is_huge(uint64_t size_bytes) {
  return size_bytes >= kHugePage;
}

// Whole pages, zeroed on first use, `alignment` being a multiple of a page. `protection` is mmap's. Null if there is no
// room.
void* region_map(uint64_t size_bytes, uint64_t alignment, int protection);

// `own_pages`: the region shares no page with anything else, and is not accessible until region_protect.
// Null if there is none left.
void* region_allocate(uint64_t size_bytes, bool own_pages);

// With the arguments of the allocation.
void region_free(void* ptr, uint64_t size_bytes, bool own_pages);

// Of a region with own pages.
void region_protect(void* ptr, uint64_t size_bytes, bool readable, bool writable);

// Addresses without memory, which region_commit puts there; a multiple of kHugePage, aligned to it. Null if there is no
// room.
void* region_reserve(uint64_t size_bytes);
void region_release(void* ptr, uint64_t size_bytes);

// Multiples of kHugePage. `accessible`: else neither readable nor writable until region_protect. False if the system has
// no more.
bool region_commit(void* ptr, uint64_t size_bytes, bool accessible);
bool region_decommit(void* ptr, uint64_t size_bytes);

} // namespace xcpu
