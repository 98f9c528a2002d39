/* A device with one fault on demand, made of a device without: the library in TORCH_BACKEND_FAULTY_OVER is opened, and
 * the fault that TORCH_BACKEND_FAULTY names replaces some of its functions. Unset: no fault. The device has the good
 * one's name and options. For the tests of the conformance kit, which has to find every one of these faults.
 *
 * The faults are those that drivers have. */
#include "wrapper.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tables.h"

static tb_host given_host; /* what the good device gets for `host` */

/* ---- how a fault is written ---- */

typedef struct part {
  const char* fault;
  void (*make)(void);
  int is_early;
} part;

static part parts[1024];
static int num_parts;

#define PART(fault, name, is_early)                                       \
  static void fault##_##name##_made(void);                                \
  __attribute__((constructor)) static void fault##_##name##_known(void) { \
    parts[num_parts++] = (part){#fault, fault##_##name##_made, is_early}; \
  }                                                                       \
  static void fault##_##name##_made(void)

/* What is done when the good device has been opened, and what is done before. */
#define CHANGE(fault, ...) \
  PART(fault, change, 0) { \
    __VA_ARGS__;           \
  }
#define BEFORE(fault, ...) \
  PART(fault, before, 1) { \
    __VA_ARGS__;           \
  }

/* What a slot does instead: all of it, an expression that it answers, what it does before the good device is called, or what
 * it does then, when `status` is what that said. A fault of two slots is two of these, one after the other. */
#define FAULT(fault, slot)        \
  FUNCTION(fault##_##slot, slot); \
  PART(fault, slot, 0) {          \
    MADE(slot) = fault##_##slot;  \
  }                               \
  FUNCTION(fault##_##slot, slot)
#define ANSWERS(fault, slot, ...) \
  FAULT(fault, slot) {            \
    return __VA_ARGS__;           \
  }
#define FIRST(fault, slot, ...) \
  FAULT(fault, slot) {          \
    __VA_ARGS__;                \
    return GOOD(slot);          \
  }
#define THEN(fault, slot, ...)     \
  FAULT(fault, slot) {             \
    tb_status status = GOOD(slot); \
    __VA_ARGS__;                   \
    return status;                 \
  }

/* For what runs later. */
#define KEPT(type, ...) memcpy(malloc(sizeof(type)), &(type){__VA_ARGS__}, sizeof(type))

static void pause_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* ---- a set of pointers, for faults that remember ---- */

#define MAX_POINTERS 8192
static pthread_mutex_t pointers_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards pointers */
static const void* pointers[MAX_POINTERS];

static int exchange(const void* from, const void* to) {
  int i, found = 0;
  pthread_mutex_lock(&pointers_mutex);
  for (i = 0; i < MAX_POINTERS && !found; ++i) {
    if (pointers[i] == from) {
      pointers[i] = to;
      found = 1;
    }
  }
  pthread_mutex_unlock(&pointers_mutex);
  return found;
}

static int forget(const void* pointer) {
  return exchange(pointer, NULL);
}

static int remember(const void* pointer) { /* 0 if it was known */
  const int known = forget(pointer);
  exchange(NULL, pointer);
  return !known;
}

/* ---- what the good device may lack, so that the tests have something to test ---- */

FUNCTION(register_nothing, host_register) {
  return TB_STATUS_OK;
}

FUNCTION(unregister_nothing, host_unregister) {
  return TB_STATUS_OK;
}

/* ---- copies ---- */

FIRST(copy_drops_the_tail, memory_copy, if (size_bytes > 64) size_bytes &= ~63ull)
FIRST(copy_rounds_the_size_up, memory_copy,
      if (kind == TB_COPY_DEVICE_TO_DEVICE) size_bytes = (size_bytes + 15) & ~15ull)
FIRST(copy_rounds_addresses, memory_copy,
      if (kind == TB_COPY_HOST_TO_DEVICE) dst = (void*)((uintptr_t)dst & ~(uintptr_t)3))

FAULT(copy_goes_the_wrong_way, memory_copy) {
  if (kind == TB_COPY_DEVICE_TO_DEVICE && size_bytes % 2)
    return good.core.memory_copy(src_device, (void*)src, dst_device, dst, size_bytes, kind, stream);
  return GOOD(memory_copy);
}

FIRST(copy_between_devices_is_skipped, memory_copy, if (kind == TB_COPY_PEER) return TB_STATUS_OK)

FAULT(copy_of_unknown_kind_moves, memory_copy) {
  tb_status status;
  if (kind >= TB_COPY_HOST_TO_DEVICE && kind <= TB_COPY_PEER) return GOOD(memory_copy);
  status = good.core.memory_copy(dst_device, dst, -1, src, size_bytes, TB_COPY_HOST_TO_DEVICE, stream);
  return status ? status : host->fail(TB_STATUS_UNSUPPORTED, "no copy of kind %u", (unsigned)kind);
}

THEN(copy_is_not_ready, memory_copy, if (!status) status = TB_STATUS_NOT_READY)
FIRST(copy_crashes, memory_copy, if (kind == TB_COPY_DEVICE_TO_DEVICE) raise(SIGSEGV))

FAULT(small_copies_overtake, memory_copy) {
  if (kind != TB_COPY_HOST_TO_DEVICE || size_bytes > 64) return GOOD(memory_copy);
  memcpy(dst, src, (size_t)size_bytes);
  return TB_STATUS_OK;
}

static int num_enqueued;

FIRST(few_copies_fit, memory_copy, if (++num_enqueued > 500) return host->fail(TB_STATUS_INTERNAL, "the queue is full"))
FIRST(few_copies_fit, stream_synchronize, num_enqueued = 0)

static int has_failed;

FIRST(failures_stay, memory_copy, if (has_failed) return has_failed = 0,
      host->fail(TB_STATUS_INTERNAL, "an earlier call failed"))
THEN(failures_stay, memory_allocate, has_failed |= status == TB_STATUS_OUT_OF_MEMORY)
ANSWERS(rows_without_pitch, memory_copy_2d,
        copy_rows(device, dst, width_bytes, src, width_bytes, width_bytes, height, kind, stream))

/* A driver that copies row by row, until it sees that both sides are in one buffer. */
FAULT(rows_of_one_block_are_begun, memory_copy_2d) {
  tb_pointer_info to = {.struct_size = sizeof to}, from = {.struct_size = sizeof from};
  good.core.memory_query(dst, &to);
  good.core.memory_query(src, &from);
  if (kind != TB_COPY_DEVICE_TO_DEVICE || to.base != from.base) return GOOD(memory_copy_2d);
  height = 1;
  GOOD(memory_copy_2d);
  return host->fail(TB_STATUS_UNSUPPORTED, "both sides are in one buffer");
}

ANSWERS(rows_of_one_block_are_one_block, memory_copy_2d,
        src_pitch_bytes != dst_pitch_bytes || kind != TB_COPY_DEVICE_TO_DEVICE
            ? GOOD(memory_copy_2d)
            : original.memory_copy(device, dst, device, src, (height - 1) * src_pitch_bytes + width_bytes, kind,
                                   stream))

FAULT(copies_within_a_block_are_skipped, memory_copy) {
  tb_pointer_info to = {.struct_size = sizeof to}, from = {.struct_size = sizeof from};
  good.core.memory_query(dst, &to);
  good.core.memory_query(src, &from);
  return kind == TB_COPY_DEVICE_TO_DEVICE && to.base == from.base ? TB_STATUS_OK : GOOD(memory_copy);
}

FIRST(large_copies_lack_the_rest, memory_copy, if (size_bytes > 1 << 25) size_bytes &= ~4095ull)
FIRST(copies_out_drop_the_tail, memory_copy,
      if (kind == TB_COPY_DEVICE_TO_HOST && size_bytes > 64) size_bytes &= ~63ull)
FIRST(rows_within_lack_the_last, memory_copy_2d, if (kind == TB_COPY_DEVICE_TO_DEVICE && height > 1)-- height)

/* ---- fills ---- */

FIRST(fill_begins_at_the_base, memory_fill, dst = (void*)((uintptr_t)dst & ~(uintptr_t)63))
FIRST(fill_misses_the_last_byte, memory_fill, if (pattern_bytes == 1 && size_bytes > 1) size_bytes -= 1)
FIRST(fill_halves_wide_patterns, memory_fill, if (pattern_bytes == 16) pattern_bytes = 8)

/* Until somebody waits, which nobody does for a device that is not asynchronous. */
ANSWERS(fills_are_left_for_later, memory_fill, TB_STATUS_OK)

typedef struct late_fill {
  char* dst;
  const char* pattern;
  uint32_t pattern_bytes;
  uint64_t size;
} late_fill;

static void run_late_fill(void* arg) {
  late_fill* fill = arg;
  uint64_t i;
  pause_ms(5);
  for (i = 0; i < fill->size; ++i) fill->dst[i] = fill->pattern[i % fill->pattern_bytes];
  free(fill);
}

FAULT(fill_reads_the_pattern_late, memory_fill) {
  void* fill = KEPT(late_fill, dst, pattern, pattern_bytes, size_bytes);
  return good.core.stream_host_function(device, stream, run_late_fill, fill);
}

/* ---- memory ---- */

ANSWERS(free_leaks, memory_free, TB_STATUS_OK)

static void* shared_block;

FAULT(small_blocks_overlap, memory_allocate) {
  if (kind != TB_MEMORY_DEVICE || size_bytes > 16) return GOOD(memory_allocate);
  if (!shared_block) good.core.memory_allocate(device, kind, 64, stream, &shared_block);
  *out_ptr = shared_block;
  return TB_STATUS_OK;
}

ANSWERS(small_blocks_overlap, memory_free, ptr == shared_block ? TB_STATUS_OK : GOOD(memory_free))

#define SHIFT 16

FAULT(blocks_are_misaligned, memory_allocate) {
  void* ptr;
  const tb_status status = good.core.memory_allocate(device, kind, size_bytes + SHIFT, stream, &ptr);
  if (status == TB_STATUS_OK) *out_ptr = (char*)ptr + SHIFT;
  return status;
}

FAULT(blocks_are_misaligned, memory_free) {
  return good.core.memory_free(device, kind, (char*)ptr - SHIFT, size_bytes + SHIFT, stream);
}

FAULT(threads_get_the_same_block, memory_allocate) {
  static void* block;
  const uint64_t largest = 1 << 17; /* so that only contents get mixed up */
  const tb_status status =
      good.core.memory_allocate(device, kind, size_bytes < largest ? largest : size_bytes, stream, &block);
  pause_ms(1);
  if (status == TB_STATUS_OK) *out_ptr = block;
  return status;
}

ANSWERS(threads_get_the_same_block, memory_free, TB_STATUS_OK)
ANSWERS(unregister_fails, host_unregister, host->fail(TB_STATUS_INVALID_ARGUMENT, "%p is not registered", ptr))
ANSWERS(access_is_a_bit_mask, peer_can_access, (*out_can_access = 1 << peer, TB_STATUS_OK))

static int ran_out;

FAULT(memory_stays_full, memory_allocate) {
  const tb_status status = ran_out ? host->fail(TB_STATUS_OUT_OF_MEMORY, "still full") : GOOD(memory_allocate);
  ran_out |= status == TB_STATUS_OUT_OF_MEMORY;
  return status;
}

THEN(full_memory_is_internal, memory_allocate,
     if (status == TB_STATUS_OUT_OF_MEMORY) status = host->fail(TB_STATUS_INTERNAL, "driver error 2"))
FIRST(failures_write_pointers, memory_allocate, *out_ptr = NULL)

FAULT(refused_memory_is_taken, memory_allocate) {
  void* lost;
  const tb_status status = GOOD(memory_allocate);
  if (status == TB_STATUS_UNSUPPORTED) good.core.memory_allocate(device, TB_MEMORY_DEVICE, size_bytes, stream, &lost);
  return status;
}

FIRST(refusals_leak, memory_allocate, if (kind > TB_MEMORY_SHARED) memset(malloc(512), 1, 512))
FIRST(unknown_kinds_are_device_memory, memory_allocate, if (kind > TB_MEMORY_SHARED) kind = TB_MEMORY_DEVICE)

/* Device 1 gets the block that device 0 got last, if it has the right size. */
static void* block_of_device_0;
static uint64_t size_on_device_0;

FAULT(device_1_aliases_device_0, memory_allocate) {
  tb_status status;
  if (device == 1 && kind == TB_MEMORY_DEVICE && block_of_device_0 && size_bytes == size_on_device_0) {
    *out_ptr = block_of_device_0;
    remember(block_of_device_0);
    return TB_STATUS_OK;
  }
  status = GOOD(memory_allocate);
  if (status == TB_STATUS_OK && device == 0) {
    block_of_device_0 = *out_ptr;
    size_on_device_0 = size_bytes;
  }
  return status;
}

FAULT(device_1_aliases_device_0, memory_free) {
  if (device == 1 && forget(ptr)) return TB_STATUS_OK;
  if (ptr == block_of_device_0) block_of_device_0 = NULL;
  return GOOD(memory_free);
}

/* ---- addresses, and memory behind them ---- */

ANSWERS(decommits_leak, memory_decommit, TB_STATUS_OK)
THEN(commits_are_internal_when_full, memory_commit,
     if (status == TB_STATUS_OUT_OF_MEMORY) status = host->fail(TB_STATUS_INTERNAL, "driver error 2"))

static char* committed_before;

THEN(commits_clear_the_last, memory_commit,
     if (!status && committed_before) good.core.memory_fill(device, committed_before, "", 1, 1, NULL);
     if (!status) committed_before = ptr)
FIRST(commits_clear_the_last, memory_decommit, if (ptr == committed_before) committed_before = NULL)

#define PART_BYTES (2 << 20)

FAULT(reservations_are_misaligned, address_reserve) {
  void* base;
  const tb_status status = good.core.address_reserve(device, size_bytes + PART_BYTES, &base);
  if (status == TB_STATUS_OK) *out_ptr = (char*)base + 4096;
  return status;
}

ANSWERS(reservations_are_misaligned, address_release,
        good.core.address_release(device, (char*)ptr - 4096, size_bytes + PART_BYTES))
ANSWERS(addresses_leak, address_release, TB_STATUS_OK)

/* Whether an address lies in what was committed last. */
static char* committed;

#define IS_COMMITTED(ptr) (committed && (char*)(ptr) >= committed && (char*)(ptr) < committed + PART_BYTES)
#define NOTES_COMMITS(fault) THEN(fault, memory_commit, if (!status) committed = ptr)

NOTES_COMMITS(commits_are_for_the_default_stream)
FIRST(commits_are_for_the_default_stream, memory_copy, if (stream && IS_COMMITTED(dst)) return TB_STATUS_OK)
NOTES_COMMITS(commits_are_not_for_peers)
FIRST(commits_are_not_for_peers, memory_copy, if (kind == TB_COPY_PEER && IS_COMMITTED(dst)) return TB_STATUS_OK)
NOTES_COMMITS(kernels_of_peers_have_no_commits)
FIRST(kernels_of_peers_have_no_commits, module_launch, if (IS_COMMITTED(params[0].data)) return TB_STATUS_OK)
NOTES_COMMITS(copies_end_with_a_part)
FIRST(copies_end_with_a_part, memory_copy,
      if (committed && (uintptr_t)dst % PART_BYTES + size_bytes > PART_BYTES)
          size_bytes = PART_BYTES - (uintptr_t)dst % PART_BYTES)
THEN(commits_are_not_for_the_host, memory_commit, if (!status) mprotect(ptr, size_bytes, PROT_NONE))

/* A part is known by itself. */
THEN(parts_are_allocations, memory_query,
     if (!status && out_info->kind == TB_MEMORY_DEVICE) out_info->size_bytes = 4096)
FIRST(reservations_take_memory, address_reserve,
      if (size_bytes > (uint64_t)1 << 40) return host->fail(TB_STATUS_OUT_OF_MEMORY, "no pages are left"))

static int num_allocated;

FIRST(blocks_are_counted_once, memory_allocate,
      if (++num_allocated > 40) return host->fail(TB_STATUS_OUT_OF_MEMORY, "no block is left"))

static void* allocated_before;

THEN(new_memory_clears_the_last, memory_allocate,
     if (!status && allocated_before) good.core.memory_fill(device, allocated_before, "", 1, 1, NULL);
     if (!status) allocated_before = *out_ptr)
FIRST(new_memory_clears_the_last, memory_free, if (ptr == allocated_before) allocated_before = NULL)

/* With pages that the host must not touch. */
FIRST(pinned_memory_is_device_memory, memory_allocate, if (kind == TB_MEMORY_HOST) kind = TB_MEMORY_DEVICE)
FIRST(pinned_memory_is_device_memory, memory_free, if (kind == TB_MEMORY_HOST) kind = TB_MEMORY_DEVICE)

FAULT(pinned_memory_is_not_read, memory_copy) {
  tb_pointer_info info = {.struct_size = sizeof info};
  good.core.memory_query(src, &info);
  return kind == TB_COPY_HOST_TO_DEVICE && info.kind == TB_MEMORY_HOST ? TB_STATUS_OK : GOOD(memory_copy);
}

THEN(all_memory_is_free, memory_info, *out_free_bytes = *out_total_bytes)
THEN(more_is_free_than_there_is, memory_info, *out_free_bytes = *out_total_bytes + 4096)
THEN(only_bases_are_known, memory_query, if (!status && out_info->base != ptr) out_info->kind = TB_MEMORY_UNKNOWN)
FIRST(query_overruns, memory_query, out_info->struct_size = sizeof *out_info)
THEN(everything_is_ours, memory_query,
     if (!status && out_info->kind == TB_MEMORY_UNKNOWN) out_info->kind = TB_MEMORY_DEVICE)

/* Mappings that do not nest: the first unmap ends them all. */
static int is_mapped, mapped_device;
static void* mapped_ptr;
static uint64_t mapped_size;

FAULT(mappings_do_not_nest, memory_map) {
  if (is_mapped) return TB_STATUS_OK;
  is_mapped = 1, mapped_device = device, mapped_ptr = ptr, mapped_size = size_bytes;
  return good.core.memory_map(device, ptr, size_bytes, TB_MAP_READ | TB_MAP_WRITE);
}

FAULT(mappings_do_not_nest, memory_unmap) {
  if (!is_mapped) return TB_STATUS_OK;
  is_mapped = 0;
  return good.core.memory_unmap(mapped_device, mapped_ptr, mapped_size, TB_MAP_READ | TB_MAP_WRITE);
}

/* Mapping by copies, of which one way is forgotten. */
FIRST(mapping_shows_nothing, memory_map, good.core.memory_fill(device, ptr, "", 1, size_bytes, NULL),
      finish(device, NULL))

static char* stored_before;

THEN(stores_are_lost, memory_map, stored_before = memcpy(malloc(size_bytes), ptr, size_bytes))
FIRST(stores_are_lost, memory_unmap, if (access & TB_MAP_WRITE) memcpy(ptr, stored_before, size_bytes))

/* Cleared for safety, by a driver whose every stream waits for the default stream, but for those that do not. */
THEN(new_memory_is_cleared_on_the_default_stream, memory_allocate,
     if (!status && kind == TB_MEMORY_DEVICE) good.core.memory_fill(device, *out_ptr, "", 1, size_bytes, NULL))

/* It declares TB_CAP_STREAM_ALLOC, and what is freed is the next to be given out. */
static void* freed_last;
static uint64_t size_freed_last;

FAULT(freed_memory_is_given_out_at_once, device_properties) {
  const tb_status status = GOOD(device_properties);
  if (!status) out_properties->capabilities |= TB_CAP_STREAM_ALLOC;
  return status;
}

FAULT(freed_memory_is_given_out_at_once, memory_allocate) {
  if (kind != TB_MEMORY_DEVICE || !freed_last || size_bytes != size_freed_last) return GOOD(memory_allocate);
  *out_ptr = freed_last;
  freed_last = NULL;
  return TB_STATUS_OK;
}

FAULT(freed_memory_is_given_out_at_once, memory_free) {
  if (kind != TB_MEMORY_DEVICE || freed_last) return GOOD(memory_free);
  freed_last = ptr;
  size_freed_last = size_bytes;
  return TB_STATUS_OK;
}

/* ---- memory that processes share ---- */

FAULT(imports_are_copies, ipc_import) {
  tb_pointer_info info = {.struct_size = sizeof info};
  void *theirs, *copy;
  tb_status status = good.core.ipc_import(device, handle, &theirs);
  if (status) return status;
  good.core.memory_query(theirs, &info);
  status = good.core.memory_allocate(device, TB_MEMORY_DEVICE, info.size_bytes, NULL, &copy);
  if (!status)
    status = good.core.memory_copy(device, copy, device, theirs, info.size_bytes, TB_COPY_DEVICE_TO_DEVICE, NULL);
  if (!status) status = finish(device, NULL);
  good.core.ipc_close(device, theirs);
  if (!status) *out_ptr = copy;
  return status;
}

FAULT(imports_are_copies, ipc_close) {
  tb_pointer_info info = {.struct_size = sizeof info};
  good.core.memory_query(ptr, &info);
  return good.core.memory_free(device, TB_MEMORY_DEVICE, ptr, info.size_bytes, NULL);
}

THEN(imports_start_elsewhere, ipc_import, if (!status) out_ptr[0] = (char*)out_ptr[0] + 64)
ANSWERS(imports_start_elsewhere, ipc_close, good.core.ipc_close(device, (char*)ptr - 64))

FAULT(closing_wipes_memory, ipc_close) {
  const char zero = 0;
  tb_pointer_info info = {.struct_size = sizeof info};
  tb_status status;
  good.core.memory_query(ptr, &info);
  status = good.core.memory_fill(device, ptr, &zero, 1, info.size_bytes, NULL);
  if (!status) status = finish(device, NULL);
  return status ? status : GOOD(ipc_close);
}

ANSWERS(nothing_is_closed, ipc_close, TB_STATUS_OK)

FAULT(gone_memory_is_imported, ipc_import) {
  const tb_status status = GOOD(ipc_import);
  return status ? good.core.memory_allocate(device, TB_MEMORY_DEVICE, 4096, NULL, out_ptr) : status;
}

FAULT(all_handles_are_the_first, ipc_export) {
  static tb_ipc_handle first[64];
  static int has_first[64];
  const tb_status status = GOOD(ipc_export);
  if (status) return status;
  if (!has_first[device]) first[device] = *out_handle;
  has_first[device] = 1;
  *out_handle = first[device];
  return status;
}

/* ---- properties ---- */

FAULT(properties_change, device_properties) {
  static int32_t calls;
  const tb_status status = GOOD(device_properties);
  if (out_properties->struct_size == sizeof *out_properties) out_properties->multiprocessor_count += ++calls;
  return status;
}

FIRST(properties_overrun, device_properties, out_properties->struct_size = sizeof *out_properties)

/* For faults in single fields: the good answer, all of it, is changed and handed out. */
static tb_status changed_properties(int32_t device, tb_device_properties* out_properties,
                                    void (*change)(int32_t, tb_device_properties*)) {
  tb_device_properties properties;
  const uint64_t room = out_properties->struct_size;
  tb_status status;
  properties.struct_size = sizeof properties;
  status = good.core.device_properties(device, &properties);
  change(device, &properties);
  if (room < properties.struct_size) properties.struct_size = room;
  memcpy(out_properties, &properties, room < sizeof properties ? room : sizeof properties);
  return status;
}

#define CHANGED(name, statement)                                      \
  static void name##_field(int32_t device, tb_device_properties* p) { \
    statement;                                                        \
  }                                                                   \
  ANSWERS(name, device_properties, changed_properties(device, out_properties, name##_field))

CHANGED(alignment_is_odd, p->allocation_alignment_bytes = 96)
CHANGED(priorities_are_reversed, p->stream_priority_lowest = -3; p->stream_priority_highest = 2)
CHANGED(name_is_not_terminated, memset(p->name, 'x', sizeof p->name))
CHANGED(devices_differ, if (device == 1) p->capabilities &= ~TB_CAP_HOST_COHERENT)
CHANGED(unknown_capabilities, p->capabilities |= 1ull << 60)
CHANGED(blocks_have_more_items_than_room, p->max_block[0] = p->max_block[1] = p->max_block[2] = 8;
        p->max_block_items = 1024)
CHANGED(blocks_are_smaller_than_they_say, p->max_block[0] = p->max_block_items = 64)
CHANGED(preferred_blocks_are_too_large, p->max_block_items = 256; p->preferred_block_items = 512)
CHANGED(allocations_are_larger_than_memory, p->max_allocation_bytes = p->total_memory_bytes + 1)
CHANGED(larger_allocations_succeed, p->max_allocation_bytes = 1 << 20)
CHANGED(driver_version_is_not_terminated, memset(p->driver_version, 'v', sizeof p->driver_version))
CHANGED(driver_version_is_no_text, memcpy(p->driver_version, "\xff\xfe", 3))
CHANGED(computes_in_what_it_cannot_store, p->dtype_mask[0] = TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32);
        p->compute_dtype_mask[0] = TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 64))
FAULT(properties_claim_what_is_not_there, device_properties) {
  const uint64_t room = out_properties->struct_size;
  const tb_status status = GOOD(device_properties);
  out_properties->struct_size = room;
  return status;
}

CHANGED(ipc_is_not_declared, p->capabilities &= ~TB_CAP_IPC)
CHANGED(nothing_can_be_mapped, p->capabilities &= ~TB_CAP_HOST_COHERENT)
CHANGE(nothing_is_unregistered, MADE(host_unregister) = NULL)
CHANGED(no_memory_at_all, p->total_memory_bytes = 0)
CHANGED(uuids_are_equal, memset(p->uuid, 7, sizeof p->uuid))
CHANGE(graphs_without_table, made.graph.struct_size = 0)
CHANGE(timing_without_its_slot, MADE(event_elapsed) = NULL)
CHANGE(asynchronous_without_wait, MADE(stream_wait_event) = NULL)

FAULT(device_count_changes, device_count) {
  static int calls;
  const tb_status status = GOOD(device_count);
  if (++calls > 2) *out_count -= 1;
  return status;
}

/* ---- streams ---- */

ANSWERS(synchronize_returns_early, stream_synchronize, TB_STATUS_OK)
THEN(copies_are_waited_for, memory_copy,
     if (!status) status = good.core.stream_synchronize(dst_device < 0 ? src_device : dst_device, stream))
FIRST(synchronize_hangs, stream_synchronize, while (stream) pause_ms(1000))
ANSWERS(device_synchronize_forgets_streams, device_synchronize, good.core.stream_synchronize(device, NULL))
ANSWERS(stream_query_waits, stream_query, GOOD(stream_synchronize))
ANSWERS(stream_is_always_idle, stream_query, TB_STATUS_OK)

FAULT(priorities_are_refused, stream_create) {
  tb_device_properties properties;
  properties.struct_size = sizeof properties;
  good.core.device_properties(device, &properties);
  if (priority == properties.stream_priority_highest)
    return host->fail(TB_STATUS_INVALID_ARGUMENT, "no priority %d", (int)priority);
  return GOOD(stream_create);
}

FAULT(one_stream_for_all, stream_create) {
  static tb_stream* only[64];
  const tb_status status = only[device] ? TB_STATUS_OK : good.core.stream_create(device, priority, &only[device]);
  if (status == TB_STATUS_OK) *out_stream = only[device];
  return status;
}

ANSWERS(one_stream_for_all, stream_destroy, TB_STATUS_OK)

FIRST(streams_leak, stream_destroy, memset(malloc(1 << 14), 1, 1 << 14))

FAULT(few_streams_exist, stream_create) {
  static int count;
  if (++count > 16) return host->fail(TB_STATUS_INTERNAL, "there are 16 queues");
  return GOOD(stream_create);
}

/* Copies that look whether their stream is still there. */
typedef struct checked_copy {
  void* dst;
  const void* src;
  uint64_t size;
  tb_stream* stream;
} checked_copy;

static void run_checked_copy(void* arg) {
  checked_copy* copy = arg;
  if (forget(copy->stream)) {
    remember(copy->stream);
    memcpy(copy->dst, copy->src, copy->size);
  }
  free(copy);
}

FAULT(destroyed_stream_drops_work, memory_copy) {
  if (!stream || kind != TB_COPY_HOST_TO_DEVICE) return GOOD(memory_copy);
  remember(stream);
  return good.core.stream_host_function(dst_device, stream, run_checked_copy,
                                        KEPT(checked_copy, dst, src, size_bytes, stream));
}

FIRST(destroyed_stream_drops_work, stream_destroy, forget(stream))

/* ---- events ---- */

ANSWERS(event_completes_early, event_query, TB_STATUS_OK)
ANSWERS(event_synchronize_returns_early, event_synchronize, TB_STATUS_OK)
ANSWERS(event_never_completes, event_query, TB_STATUS_NOT_READY)
THEN(not_ready_is_an_error, event_query,
     if (status == TB_STATUS_NOT_READY) status = host->fail(TB_STATUS_INTERNAL, "driver error 600"))
ANSWERS(event_query_waits, event_query, GOOD(event_synchronize))
ANSWERS(wait_is_ignored, stream_wait_event, TB_STATUS_OK)

FAULT(wait_is_for_own_events, stream_wait_event) {
  const tb_status status = GOOD(event_query); /* refused for an event of another device */
  return status == TB_STATUS_INVALID_ARGUMENT ? TB_STATUS_OK : GOOD(stream_wait_event);
}

FAULT(wait_blocks, stream_wait_event) {
  const tb_status status = GOOD(event_synchronize);
  return status ? status : GOOD(stream_wait_event);
}

ANSWERS(only_the_first_record_counts, event_record, remember(event) ? GOOD(event_record) : TB_STATUS_OK)
FIRST(only_the_first_record_counts, event_destroy, forget(event))
FIRST(destroying_a_pending_event_crashes, event_destroy, if (GOOD(event_query) == TB_STATUS_NOT_READY) abort())

/* A stream that waits looks at the event until it is complete, or gone. */
typedef struct polled_event {
  int32_t device;
  tb_event* event;
} polled_event;

static void poll_event(void* arg) {
  polled_event* polled = arg;
  while (forget(polled->event)) {
    remember(polled->event);
    if (good.core.event_query(polled->device, polled->event) == TB_STATUS_OK) break;
    pause_ms(1);
  }
  free(polled);
}

FAULT(destroying_an_event_ends_waits, stream_wait_event) {
  remember(event);
  return good.core.stream_host_function(device, stream, poll_event, KEPT(polled_event, device, event));
}

FIRST(destroying_an_event_ends_waits, event_destroy, forget(event), pause_ms(3))
ANSWERS(events_leak, event_destroy, TB_STATUS_OK)

FAULT(one_event_for_all, event_create) {
  static tb_event* only[64];
  const tb_status status = only[device] ? TB_STATUS_OK : good.core.event_create(device, flags, &only[device]);
  if (status == TB_STATUS_OK) *out_event = only[device];
  return status;
}

ANSWERS(one_event_for_all, event_destroy, TB_STATUS_OK)
FIRST(unknown_flags_are_taken, event_create, flags &= TB_EVENT_TIMING)
THEN(elapsed_in_microseconds, event_elapsed, if (!status) out_elapsed_ns[0] /= 1000)
ANSWERS(elapsed_runs_backwards, event_elapsed, good.core.event_elapsed(device, end, start, out_elapsed_ns))
THEN(pending_events_have_times, event_elapsed,
     if (status == TB_STATUS_NOT_READY) out_elapsed_ns[0] = status = TB_STATUS_OK)
/* As in drivers that read two time stamps and ask no further. */
FAULT(devices_share_a_clock, event_elapsed) {
  const tb_status status = GOOD(event_elapsed);
  tb_event* never;
  if (status != TB_STATUS_INVALID_ARGUMENT || good.core.event_create(device, TB_EVENT_TIMING, &never)) return status;
  good.core.event_destroy(device, never);
  *out_elapsed_ns = 0;
  return good.core.event_query(device, start) == TB_STATUS_INVALID_ARGUMENT ||
                 good.core.event_query(device, end) == TB_STATUS_INVALID_ARGUMENT
             ? TB_STATUS_OK
             : status;
}

THEN(unrecorded_events_have_times, event_elapsed,
     if (status == TB_STATUS_INVALID_ARGUMENT) out_elapsed_ns[0] = status = TB_STATUS_OK)

/* ---- host functions ---- */

typedef struct host_call {
  tb_host_function fn;
  void* arg;
} host_call;

static void call_twice(void* arg) {
  const host_call call = *(host_call*)arg;
  free(arg);
  call.fn(call.arg);
  call.fn(call.arg);
}

FAULT(function_runs_twice, stream_host_function) {
  return good.core.stream_host_function(device, stream, call_twice, KEPT(host_call, fn, arg));
}

ANSWERS(function_never_runs, stream_host_function, TB_STATUS_OK)
ANSWERS(function_runs_at_once, stream_host_function, (fn(arg), TB_STATUS_OK))

static int num_functions; /* since somebody waited */

FIRST(few_functions_are_kept, stream_synchronize, num_functions = 0)
ANSWERS(few_functions_are_kept, stream_host_function, ++num_functions > 100 ? TB_STATUS_OK : GOOD(stream_host_function))

static void* call_in_thread(void* arg) {
  const host_call call = *(host_call*)arg;
  free(arg);
  pause_ms(10);
  call.fn(call.arg);
  return NULL;
}

static void start_thread(void* arg) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, call_in_thread, arg) == 0) pthread_detach(thread);
}

FAULT(nobody_waits_for_the_function, stream_host_function) {
  return good.core.stream_host_function(device, stream, start_thread, KEPT(host_call, fn, arg));
}

/* One thread for the functions of all streams, or even for everything. */
static pthread_mutex_t functions_mutex = PTHREAD_MUTEX_INITIALIZER;

static void call_alone(void* arg) {
  const host_call call = *(host_call*)arg;
  free(arg);
  pthread_mutex_lock(&functions_mutex);
  call.fn(call.arg);
  pthread_mutex_unlock(&functions_mutex);
}

ANSWERS(functions_wait_for_each_other, stream_host_function,
        good.core.stream_host_function(device, stream, call_alone, KEPT(host_call, fn, arg)))
static int is_in_the_way;

static void call_in_the_way(void* arg) {
  const host_call call = *(host_call*)arg;
  free(arg);
  __atomic_add_fetch(&is_in_the_way, 1, __ATOMIC_SEQ_CST);
  call.fn(call.arg);
  __atomic_sub_fetch(&is_in_the_way, 1, __ATOMIC_SEQ_CST);
}

static void wait_for_functions(void) {
  while (__atomic_load_n(&is_in_the_way, __ATOMIC_SEQ_CST)) pause_ms(1);
}

ANSWERS(functions_block_copies, stream_host_function,
        good.core.stream_host_function(device, stream, call_in_the_way, KEPT(host_call, fn, arg)))
FIRST(functions_block_copies, memory_copy, wait_for_functions())

static tb_host_function waiting_function;
static void* waiting_arg;

/* Called when somebody waits, by a driver without a thread of its own. */
FAULT(functions_run_in_waits, stream_host_function) {
  if (waiting_function) waiting_function(waiting_arg);
  waiting_function = fn, waiting_arg = arg;
  return TB_STATUS_OK;
}

FIRST(functions_run_in_waits, stream_synchronize, if (waiting_function) waiting_function(waiting_arg),
      waiting_function = NULL)

/* ---- threads and processes ---- */

static int32_t current_device; /* one for all threads */

ANSWERS(current_device_is_shared, thread_bind, (current_device = device, pause_ms(1), TB_STATUS_OK))
FIRST(current_device_is_shared, memory_allocate, device = current_device)

static __thread int32_t device_of_thread = -1; /* what memory_free needs, though nobody can set it */

FIRST(threads_cannot_be_bound, memory_allocate, device_of_thread = device)
FIRST(threads_cannot_be_bound, memory_free,
      if (device_of_thread != device) return host->fail(TB_STATUS_INVALID_ARGUMENT, "the thread has no device"))

static int driver_was_forked;

static void note_fork(void) {
  driver_was_forked = 1;
}

FAULT(counting_starts_the_driver, device_count) {
  static int is_started;
  if (!is_started) pthread_atfork(NULL, NULL, note_fork);
  is_started = 1;
  return GOOD(device_count);
}

FIRST(counting_starts_the_driver, memory_allocate, if (driver_was_forked) abort())

static void wait_at_exit(void) {
  good.core.stream_synchronize(0, NULL);
}

FAULT(exit_waits_for_the_device, initialize) {
  atexit(wait_at_exit);
  return good.core.initialize ? GOOD(initialize) : TB_STATUS_OK;
}

/* ---- what is not a slot: the host's services as the good device sees them, the entry, the other tables ---- */

static tb_status says_nothing(tb_status code, const char* format, ...) {
  return code;
}

BEFORE(texts_are_lost, given_host.fail = says_nothing)

static char last_text[512]; /* of any thread */

static tb_status says_the_last_text(tb_status code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(last_text, sizeof last_text, format, args);
  va_end(args);
  pause_ms(1);
  return host->fail(code, "%s", last_text);
}

BEFORE(texts_are_shared, given_host.fail = says_the_last_text)

static unsigned char past_the_host[sizeof(tb_host) + 64];

BEFORE(host_is_read_past_its_end, memcpy(past_the_host, host, sizeof past_the_host))

static int refuses;

BEFORE(newer_hosts_are_refused, refuses = host->abi_minor > TB_ABI_MINOR;
       if (refuses) host->fail(TB_STATUS_INTERNAL, "made for version 1.%u only", (unsigned)TB_ABI_MINOR))

BEFORE(other_majors_crash_it, if (host->abi_major != TB_ABI_MAJOR) abort())
BEFORE(other_majors_get_no_reason, refuses = host->abi_major != TB_ABI_MAJOR)
CHANGE(vendor_is_missing, plugin.vendor = NULL)
CHANGE(plugin_is_too_long, plugin.struct_size += 8)

static void list_keys_with_the_name(void) {
  static char key[64];
  static const char* keys[] = {key, NULL};
  snprintf(key, sizeof key, "%s.devices", plugin.name);
  plugin.option_keys = keys;
}

CHANGE(option_keys_have_the_name, list_keys_with_the_name())

static const void* moving_table(const char* name) {
  const void* table = made_table(name);
  return strcmp(name, "prof.1") ? table : memcpy(malloc(sizeof made.prof), table, sizeof made.prof);
}

CHANGE(tables_move, plugin.table = moving_table)

static const void* any_table(const char* name) {
  return &good;
}

CHANGE(any_table_is_offered, plugin.table = any_table)

/* ---- kernels ---- */

#define MAX_KERNELS 64
static const tb_kernel* kernel_list[MAX_KERNELS];
static tb_kernel changed_kernel;

/* The good list, of which the first entry is a copy that can be changed. */
static void copy_kernels(void) {
  memcpy(kernel_list, good.kernels.kernels, good.kernels.num_kernels * sizeof *kernel_list);
  changed_kernel = *kernel_list[0];
  kernel_list[0] = &changed_kernel;
  made.kernels.kernels = kernel_list;
}

CHANGE(kernel_is_listed_twice, copy_kernels(), changed_kernel.op = kernel_list[1]->op)
CHANGE(kernel_has_no_function, copy_kernels(), changed_kernel.function = NULL)
CHANGE(kernel_name_has_no_namespace, copy_kernels(), changed_kernel.op = "add.out")

static const uint64_t mask_without_dtypes[TB_DTYPE_MASK_WORDS] = {1ull << 63};

CHANGE(kernels_change, copy_kernels())
FIRST(kernels_change, memory_copy, changed_kernel.flags ^= 1)
CHANGE(kernel_table_is_too_long, made.kernels.struct_size += 8)
CHANGE(kernel_takes_no_dtype, copy_kernels(), changed_kernel.dtype_mask = mask_without_dtypes)
CHANGE(kernels_are_only_counted, made.kernels.kernels = NULL)

static const tb_kernel* finds_the_first(const char* op) {
  return kernel_list[0];
}

CHANGE(any_kernel_is_found, copy_kernels(), made.kernels.kernel_find = finds_the_first)

static tb_kernel_function good_kernel;

static tb_status ignores_strides(const tb_kernel_context* context, const tb_arg* args, int32_t num_args) {
  const tb_tensor* out = args[num_args - 1].v.p;
  tb_tensor input = *(const tb_tensor*)args[0].v.p;
  tb_arg changed[8];
  memcpy(changed, args, (size_t)num_args * sizeof *args);
  input.strides = out->strides;
  changed[0].v.p = &input;
  return good_kernel(context, changed, num_args);
}

CHANGE(kernel_ignores_strides, copy_kernels(), good_kernel = changed_kernel.function,
       changed_kernel.function = ignores_strides)

#include "faulty_captures.h"
#include "faulty_modules.h"
#include "faulty_order.h"
#include "faulty_threads.h"

/* ---- graphs, traces, collectives ---- */

static tb_stream* captured_instead;

FAULT(capture_does_not_stop_work, capture_begin) {
  const tb_status status = good.core.stream_create(device, 0, &captured_instead);
  return status ? status : good.graph.capture_begin(device, captured_instead, mode);
}

ANSWERS(capture_does_not_stop_work, capture_end, good.graph.capture_end(device, captured_instead, out_graph))

FAULT(graph_runs_once, graph_launch) {
  static int launches;
  return launches++ ? TB_STATUS_OK : GOOD(graph_launch);
}

FAULT(recording_streams_are_idle, stream_synchronize) {
  finish(device, stream);
  return TB_STATUS_OK;
}

ANSWERS(streams_do_not_join, stream_wait_event, TB_STATUS_OK)
FIRST(functions_run_when_recorded, stream_host_function, fn(arg))
CHANGE(graphs_cannot_be_instantiated, MADE(graph_instantiate) = NULL)
ANSWERS(streams_never_record, stream_is_capturing, (*out_is_capturing = 0, TB_STATUS_OK))
FIRST(everything_is_traced, trace_start, kinds = ~0ull)
CHANGE(traces_do_not_stop, MADE(trace_stop) = NULL)

static int is_range_open;

FAULT(ranges_do_not_nest, range_push) {
  if (is_range_open) return host->fail(TB_STATUS_INTERNAL, "a range is open");
  is_range_open = 1;
  return TB_STATUS_OK;
}

ANSWERS(ranges_do_not_nest, range_pop, (is_range_open = 0, TB_STATUS_OK))
ANSWERS(correlation_is_lost, correlation_push, good.prof.correlation_push(0))

FAULT(records_are_kept, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) callback(arg, &records[i]);
  return TB_STATUS_OK;
}

static uint64_t last_pushed; /* of any thread */

FIRST(correlations_are_shared, correlation_push, last_pushed = id)

FAULT(correlations_are_shared, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) records[i].correlation = last_pushed;
  return GOOD(trace_collect);
}

/* In ticks since the device was started. */
FAULT(records_have_another_clock, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) records[i].start_ns %= 1000, records[i].end_ns %= 1000, records[i].end_ns += 1000;
  return GOOD(trace_collect);
}

FAULT(records_name_the_default_stream, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) records[i].stream = 0;
  return GOOD(trace_collect);
}

THEN(host_clock_has_the_wrong_unit, clock_pair, *out_host_ns /= 1000)
ANSWERS(the_last_element_is_not_received, recv, good.ccl.recv(buffer, count - 1, dtype, peer, comm, stream))

FAULT(sums_differ_between_ranks, all_reduce) {
  const tb_status status = GOOD(all_reduce);
  if (comm->rank == 0)
    original.memory_copy(comm->device, out, comm->device, in, bytes_of(count, dtype), TB_COPY_DEVICE_TO_DEVICE, stream);
  return status;
}

THEN(ids_are_equal, unique_id_create, memset(out_unique_id, 7, good.ccl.unique_id_bytes))
CHANGE(ids_have_no_bytes, made.ccl.unique_id_bytes = 0)

/* ---- collectives of the good library itself, if it has them ---- */

ANSWERS(empty_messages_fail, send, count ? GOOD(send) : TB_STATUS_INVALID_ARGUMENT)
ANSWERS(empty_messages_fail, recv, count ? GOOD(recv) : TB_STATUS_INVALID_ARGUMENT)

static __thread int in_group;

ANSWERS(groups_are_forgotten, group_begin, (in_group = 1, TB_STATUS_OK))
ANSWERS(groups_are_forgotten, group_end, (in_group = 0, TB_STATUS_OK))
ANSWERS(groups_are_forgotten, send, in_group ? TB_STATUS_OK : GOOD(send))
ANSWERS(groups_are_forgotten, recv, in_group ? TB_STATUS_OK : GOOD(recv))

static int made_an_id;

FIRST(other_processes_hear_nothing, unique_id_create, made_an_id = 1)
ANSWERS(other_processes_hear_nothing, recv, made_an_id ? GOOD(recv) : TB_STATUS_OK)
ANSWERS(aborts_are_ignored, comm_abort, TB_STATUS_OK)
ANSWERS(communicators_are_always_well, comm_query_error, TB_STATUS_OK)
THEN(aborted_calls_succeed, recv, status = TB_STATUS_OK)
FIRST(products_are_sums, all_reduce, if (reduction == TB_REDUCE_PRODUCT) reduction = TB_REDUCE_SUM)
FIRST(halves_are_shorts, all_reduce, if (dtype.code == TB_DTYPE_FLOAT && dtype.bits == 16) dtype.code = TB_DTYPE_INT)
FIRST(sums_have_whole_blocks, all_reduce, count = (count + 15) / 16 * 16)
FIRST(results_are_cleared_first, all_reduce, memset(out, 0, bytes_of(count, dtype)))
ANSWERS(all_ranks_are_the_root, reduce, GOOD(all_reduce))
FIRST(broadcasts_need_two_buffers, broadcast,
      if (in == out) return host->fail(TB_STATUS_INVALID_ARGUMENT, "in and out are one"))
FIRST(reductions_clear_their_output, reduce, memset(out, 0, bytes_of(count, dtype)))
FIRST(rank_0_is_the_root, broadcast, root = 0)

FAULT(parts_are_backwards, all_gather) {
  const uint64_t size = bytes_of(count, dtype);
  char *first = out, *second = first + size, *kept = malloc(size);
  const tb_status status = GOOD(all_gather);
  memcpy(kept, first, size);
  memcpy(first, second, size);
  memcpy(second, kept, size);
  free(kept);
  return status;
}

ANSWERS(all_get_the_first_part, reduce_scatter, GOOD(all_reduce))

FAULT(parts_are_packed, all_to_all) {
  const uint64_t offsets[2] = {0, recv_counts[0]};
  recv_offsets = offsets;
  return GOOD(all_to_all);
}

#include "unusual.h"

/* ---- the device ---- */

/* 0 if there is no such fault. */
static int make_parts(const char* fault, int early) {
  int i, found = 0;
  for (i = 0; i < num_parts; ++i) {
    if (strcmp(parts[i].fault, fault) != 0) continue;
    if (parts[i].is_early == early) parts[i].make();
    found = 1;
  }
  return found;
}

/* The reason is the list of all names, which is how the tests learn them. */
static const tb_plugin* refuse_fault(const char* fault) {
  static char names[16384];
  int i;
  for (i = 0; i < num_parts; ++i) {
    if (i && strcmp(parts[i].fault, parts[i - 1].fault) == 0) continue;
    strcat(strcat(names, " "), parts[i].fault);
  }
  host->fail(TB_STATUS_INVALID_ARGUMENT, "there is no fault '%s'; there are:%s", fault, names);
  return NULL;
}

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  const char* fault = getenv("TORCH_BACKEND_FAULTY");
  const int is_faulty = fault && *fault;
  host = the_host;
  given_host = *the_host;
  if (is_faulty && !make_parts(fault, 1)) return refuse_fault(fault);
  if (refuses || !wrap(getenv("TORCH_BACKEND_FAULTY_OVER"), &given_host)) return NULL;
  add_tables();
  if (!GOOD_SLOT(memory_copy_2d)) GOOD_SLOT(memory_copy_2d) = copy_rows;
  if (!GOOD_SLOT(host_register)) {
    GOOD_SLOT(host_register) = register_nothing;
    GOOD_SLOT(host_unregister) = unregister_nothing;
  }
  made = good;
  if (is_faulty) make_parts(fault, 0);
  return &plugin;
}
