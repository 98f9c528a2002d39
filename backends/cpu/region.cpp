#include "region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace xcpu {

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// A longer range is mapped, and both ends are given back.
void* region_map(uint64_t size_bytes, uint64_t alignment, int protection) {
  const uint64_t slack = alignment - page_bytes();
  void* ptr = mmap(nullptr, size_bytes + slack, protection,
                   MAP_PRIVATE | MAP_ANONYMOUS | (protection ? 0 : MAP_NORESERVE), -1, 0);
  if (ptr == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  const uintptr_t aligned = round_up(address, alignment);
  const uint64_t before = aligned - address, after = slack - before;
  if (before > 0) munmap(ptr, before);
  if (after > 0) munmap(reinterpret_cast<void*>(aligned + size_bytes), after);
  return reinterpret_cast<void*>(aligned);
}

void* region_allocate(uint64_t size_bytes, bool own_pages) {
  if (size_bytes > kLargestRegion) return nullptr;
  if (!own_pages && !is_huge(size_bytes)) return std::aligned_alloc(kAlignment, round_up(size_bytes, kAlignment));
  const uint64_t length = round_up(size_bytes, page_bytes());
  void* ptr = region_map(length, is_huge(size_bytes) ? kHugePage : page_bytes(),
                         own_pages ? PROT_NONE : PROT_READ | PROT_WRITE);
  if (ptr && is_huge(size_bytes)) madvise(ptr, length, MADV_HUGEPAGE);
  return ptr;
}

void region_free(void* ptr, uint64_t size_bytes, bool own_pages) {
  if (own_pages || is_huge(size_bytes))
    munmap(ptr, round_up(size_bytes, page_bytes()));
  else
    std::free(ptr);
}

void region_protect(void* ptr, uint64_t size_bytes, bool readable, bool writable) {
  mprotect(ptr, round_up(size_bytes, page_bytes()),
           (readable || writable ? PROT_READ : PROT_NONE) | (writable ? PROT_WRITE : PROT_NONE));
}

void* region_reserve(uint64_t size_bytes) {
  return size_bytes > kLargestRegion ? nullptr : region_map(size_bytes, kHugePage, PROT_NONE);
}

void region_release(void* ptr, uint64_t size_bytes) {
  munmap(ptr, size_bytes);
}

bool region_commit(void* ptr, uint64_t size_bytes, bool accessible) {
  if (accessible && mprotect(ptr, size_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  madvise(ptr, size_bytes, MADV_HUGEPAGE);
  return true;
}

// A fresh mapping in the place of the old one, whose pages go back.
bool region_decommit(void* ptr, uint64_t size_bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return mmap(ptr, size_bytes, PROT_NONE, flags, -1, 0) == ptr;
}

} // namespace xcpu
