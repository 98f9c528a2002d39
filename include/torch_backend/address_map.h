/* For device libraries whose driver knows memory by handles and not by addresses (OpenCL, Vulkan, Metal): addresses to
 * hand out, and the way back from an address to its allocation.
 *
 * The core only does arithmetic within an allocation (see memory_allocate in device.h). So an allocation gets a range of
 * addresses that is reserved and has nothing behind it: whoever loads from it is stopped by a segmentation fault at the
 * line that does so, and no two allocations, of whatever library, have the same address.
 *
 *   tb_address_map map = {0};
 *   void* base = tb_address_reserve(size);                    memory_allocate
 *   tb_address_map_insert(&map, base, size, buffer);
 *   const tb_address_range* range = tb_address_map_find(&map, address);
 *   ... range->handle, offset (char*)address - (char*)range->base                 memory_copy, module_launch, ...
 *   tb_address_map_remove(&map, base); tb_address_release(base, size);            memory_free
 *
 * C99 with _DEFAULT_SOURCE, or C++; Linux; header-only, no torch. Threads: the caller locks. Finding may go on in many threads at once, inserting and
 * removing need the map for themselves (a pthread_rwlock_t, a std::shared_mutex). What find returns is valid until the next
 * insert or remove: copy it before unlocking. */
#ifndef TORCH_BACKEND_ADDRESS_MAP_H_
#define TORCH_BACKEND_ADDRESS_MAP_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_ANONYMOUS
#error "address_map.h needs _DEFAULT_SOURCE, which -std=c99 leaves undefined: define it before the first #include"
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tb_address_range {
  void* base;
  uint64_t size_bytes;
  void* handle; /* the caller's; the map does not look at it */
} tb_address_range;

/* Zero-initialized, it is empty. */
typedef struct tb_address_map {
  tb_address_range* ranges; /* by base */
  size_t count, capacity;
} tb_address_map;

/* Between what is reserved and the next: an address past the end of one allocation is not in another. */
#define TB_ADDRESS_GUARD_BYTES 4096u

/* `size_bytes` of addresses, aligned to a page, that no one can load from; NULL if there are none left. They cost no
 * memory. */
static inline void* tb_address_reserve(uint64_t size_bytes) {
  void* base = MAP_FAILED;
  if (size_bytes > 0 && size_bytes <= SIZE_MAX - TB_ADDRESS_GUARD_BYTES)
    base = mmap(NULL, (size_t)size_bytes + TB_ADDRESS_GUARD_BYTES, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? NULL : base;
}

static inline void tb_address_release(void* base, uint64_t size_bytes) {
  munmap(base, (size_t)size_bytes + TB_ADDRESS_GUARD_BYTES);
}

/* How many ranges begin at or below `address`. O(log count). */
static inline size_t tb_address_map_upper(const tb_address_map* map, const void* address) {
  size_t low = 0, high = map->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if ((uintptr_t)map->ranges[middle].base <= (uintptr_t)address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The range `address` lies in, or NULL. O(log count). */
static inline const tb_address_range* tb_address_map_find(const tb_address_map* map, const void* address) {
  const size_t upper = tb_address_map_upper(map, address);
  if (upper == 0) return NULL;
  const tb_address_range* range = &map->ranges[upper - 1];
  return (uintptr_t)address - (uintptr_t)range->base < range->size_bytes ? range : NULL;
}

/* 1, or 0 and nothing done: the range is empty or overlaps one that is there, or the host is out of memory. O(count), by a
 * move of memory. */
static inline int tb_address_map_insert(tb_address_map* map, void* base, uint64_t size_bytes, void* handle) {
  const size_t at = tb_address_map_upper(map, base);
  const uintptr_t first = (uintptr_t)base;
  if (size_bytes == 0 || size_bytes > UINTPTR_MAX - first || tb_address_map_find(map, base)) return 0;
  if (at < map->count && (uintptr_t)map->ranges[at].base - first < size_bytes) return 0;
  if (map->count == map->capacity) {
    const size_t capacity = map->capacity ? 2 * map->capacity : 64;
    void* grown = realloc(map->ranges, capacity * sizeof(tb_address_range));
    if (!grown) return 0;
    map->ranges = (tb_address_range*)grown;
    map->capacity = capacity;
  }
  memmove(map->ranges + at + 1, map->ranges + at, (map->count - at) * sizeof(tb_address_range));
  map->ranges[at].base = base;
  map->ranges[at].size_bytes = size_bytes;
  map->ranges[at].handle = handle;
  ++map->count;
  return 1;
}

/* 1, or 0 if no range begins at `base`. O(count), by a move of memory. */
static inline int tb_address_map_remove(tb_address_map* map, const void* base) {
  const size_t upper = tb_address_map_upper(map, base);
  if (upper == 0 || map->ranges[upper - 1].base != base) return 0;
  memmove(map->ranges + upper - 1, map->ranges + upper, (map->count - upper) * sizeof(tb_address_range));
  --map->count;
  return 1;
}

/* Forgets all ranges; the map is empty and can be used again. */
static inline void tb_address_map_clear(tb_address_map* map) {
  free(map->ranges);
  memset(map, 0, sizeof *map);
}

#ifdef __cplusplus
}
#endif

#endif /* TORCH_BACKEND_ADDRESS_MAP_H_ */
