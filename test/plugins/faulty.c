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

/* What has to be found of it: on which device, by which test of the kit, of level abi if it names none, and what that has to
 * say, or that the process ends. Read by kit/tests/faulty_devices.py, which has the devices' names. */
#define CAUGHT(fault, device, test, words)

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

CAUGHT(copy_drops_the_tail, fake, "test_copies.py::test_copies_to_the_device_arrive_whole[4097]",
       "4097 bytes copied from the host to offset 0: 1 of 4097 bytes are wrong, bytes 4096..4096")
CAUGHT(copy_drops_the_tail, xcpu, "tensor/test_dtypes.py::test_bits_survive[float32]", "the bytes of torch.float32")
FIRST(copy_drops_the_tail, memory_copy, if (size_bytes > 64) size_bytes &= ~63ull)
CAUGHT(copy_rounds_the_size_up, xcpu, "test_copies.py::test_copies_within_the_device_arrive_whole[17]",
       "a byte outside of the target was written")
FIRST(copy_rounds_the_size_up, memory_copy,
      if (kind == TB_COPY_DEVICE_TO_DEVICE) size_bytes = (size_bytes + 15) & ~15ull)
CAUGHT(copy_rounds_addresses, xcpu, "test_copies.py::test_copies_start_at_any_offset[13]",
       "after one byte was written at offset 13")
FIRST(copy_rounds_addresses, memory_copy,
      if (kind == TB_COPY_HOST_TO_DEVICE) dst = (void*)((uintptr_t)dst & ~(uintptr_t)3))

CAUGHT(copy_goes_the_wrong_way, xcpu, "test_copies.py::test_copies_within_the_device_arrive_whole[4097]",
       "4097 bytes copied within the device from offset 0 to offset 0")
FAULT(copy_goes_the_wrong_way, memory_copy) {
  if (kind == TB_COPY_DEVICE_TO_DEVICE && size_bytes % 2)
    return good.core.memory_copy(src_device, (void*)src, dst_device, dst, size_bytes, kind, stream);
  return GOOD(memory_copy);
}

CAUGHT(copy_between_devices_is_skipped, xcpu, "test_peers.py::test_copies_between_devices_arrive_whole[4097]",
       "4097 bytes copied from xcpu:0 to xcpu:1")
FIRST(copy_between_devices_is_skipped, memory_copy, if (kind == TB_COPY_PEER) return TB_STATUS_OK)

CAUGHT(copy_of_unknown_kind_moves, xcpu, "test_copies.py::test_a_copy_of_an_unknown_kind_moves_nothing[77]",
       "memory_copy of kind 77 failed, but had a side effect")
FAULT(copy_of_unknown_kind_moves, memory_copy) {
  tb_status status;
  if (kind >= TB_COPY_HOST_TO_DEVICE && kind <= TB_COPY_PEER) return GOOD(memory_copy);
  status = good.core.memory_copy(dst_device, dst, -1, src, size_bytes, TB_COPY_HOST_TO_DEVICE, stream);
  return status ? status : host->fail(TB_STATUS_UNSUPPORTED, "no copy of kind %u", (unsigned)kind);
}

CAUGHT(copy_is_not_ready, xcpu, "test_errors.py::test_work_is_never_not_ready", "memory_copy returned NOT_READY")
THEN(copy_is_not_ready, memory_copy, if (!status) status = TB_STATUS_NOT_READY)
CAUGHT(copy_crashes, xcpu, "test_copies.py::test_the_source_of_a_copy_is_as_it_was", CRASHED)
FIRST(copy_crashes, memory_copy, if (kind == TB_COPY_DEVICE_TO_DEVICE) raise(SIGSEGV))

CAUGHT(small_copies_overtake, async, "test_streams.py::test_small_work_does_not_overtake_large_work",
       "16 bytes that were copied over the end of a larger copy")
CAUGHT(small_copies_overtake, async, "async_/test_one_stream.py::test_copies_of_any_size_come_in_order[64-bytes]",
       "after a fill and a copy of 64 bytes")
FAULT(small_copies_overtake, memory_copy) {
  if (kind != TB_COPY_HOST_TO_DEVICE || size_bytes > 64) return GOOD(memory_copy);
  memcpy(dst, src, (size_t)size_bytes);
  return TB_STATUS_OK;
}

static int num_enqueued;

CAUGHT(few_copies_fit, async, "test_streams.py::test_a_stream_takes_much_work[thousand]", "the queue is full")
FIRST(few_copies_fit, memory_copy, if (++num_enqueued > 500) return host->fail(TB_STATUS_INTERNAL, "the queue is full"))
FIRST(few_copies_fit, stream_synchronize, num_enqueued = 0)

static int has_failed;

CAUGHT(failures_stay, xcpu, "test_errors.py::test_a_failure_does_not_stay", "an earlier call failed")
FIRST(failures_stay, memory_copy, if (has_failed) return has_failed = 0,
      host->fail(TB_STATUS_INTERNAL, "an earlier call failed"))
THEN(failures_stay, memory_allocate, has_failed |= status == TB_STATUS_OUT_OF_MEMORY)
CAUGHT(rows_without_pitch, xcpu, "test_copies_2d.py::test_rows_are_copied_to_the_host[17x33x20x9]",
       "rows (17, 33, 20, 9)")
ANSWERS(rows_without_pitch, memory_copy_2d,
        copy_rows(device, dst, width_bytes, src, width_bytes, width_bytes, height, kind, stream))

/* A driver that copies row by row, until it sees that both sides are in one buffer. */
CAUGHT(rows_of_one_block_are_begun, xcpu, "test_copies_2d.py::test_rows_are_copied_within_one_allocation[apart]",
       "memory_copy_2d within one allocation answered UNSUPPORTED, but")
FAULT(rows_of_one_block_are_begun, memory_copy_2d) {
  tb_pointer_info to = {.struct_size = sizeof to}, from = {.struct_size = sizeof from};
  good.core.memory_query(dst, &to);
  good.core.memory_query(src, &from);
  if (kind != TB_COPY_DEVICE_TO_DEVICE || to.base != from.base) return GOOD(memory_copy_2d);
  height = 1;
  GOOD(memory_copy_2d);
  return host->fail(TB_STATUS_UNSUPPORTED, "both sides are in one buffer");
}

CAUGHT(rows_of_one_block_are_one_block, xcpu,
       "test_copies_2d.py::test_rows_are_copied_within_one_allocation[side-by-side]",
       "rows that were copied within one allocation, side-by-side")
ANSWERS(rows_of_one_block_are_one_block, memory_copy_2d,
        src_pitch_bytes != dst_pitch_bytes || kind != TB_COPY_DEVICE_TO_DEVICE
            ? GOOD(memory_copy_2d)
            : original.memory_copy(device, dst, device, src, (height - 1) * src_pitch_bytes + width_bytes, kind,
                                   stream))

CAUGHT(copies_within_a_block_are_skipped, xcpu, "test_copies.py::test_copies_within_one_allocation",
       "copied to the other half")
FAULT(copies_within_a_block_are_skipped, memory_copy) {
  tb_pointer_info to = {.struct_size = sizeof to}, from = {.struct_size = sizeof from};
  good.core.memory_query(dst, &to);
  good.core.memory_query(src, &from);
  return kind == TB_COPY_DEVICE_TO_DEVICE && to.base == from.base ? TB_STATUS_OK : GOOD(memory_copy);
}

CAUGHT(large_copies_lack_the_rest, xcpu thorough, "test_copies.py::test_large_copies_arrive_whole",
       "did not arrive whole: 5 of 67108869 bytes are wrong")
FIRST(large_copies_lack_the_rest, memory_copy, if (size_bytes > 1 << 25) size_bytes &= ~4095ull)
CAUGHT(copies_out_drop_the_tail, xcpu, "test_copies.py::test_copies_to_the_host_arrive_whole[4097]", "4097 bytes")
FIRST(copies_out_drop_the_tail, memory_copy,
      if (kind == TB_COPY_DEVICE_TO_HOST && size_bytes > 64) size_bytes &= ~63ull)
CAUGHT(rows_within_lack_the_last, xcpu, "test_copies_2d.py::test_rows_are_copied_within_the_device[17x33x20x9]",
       "rows (17, 33, 20, 9)")
FIRST(rows_within_lack_the_last, memory_copy_2d, if (kind == TB_COPY_DEVICE_TO_DEVICE && height > 1)-- height)

/* ---- fills ---- */

CAUGHT(fill_begins_at_the_base, xcpu, "test_fills.py::test_fills_repeat_the_pattern[2]",
       "filled with 2 bytes at offset 6")
FIRST(fill_begins_at_the_base, memory_fill, dst = (void*)((uintptr_t)dst & ~(uintptr_t)63))
CAUGHT(fill_misses_the_last_byte, xcpu, "test_fills.py::test_fills_repeat_the_pattern[1]",
       "1 of 69 bytes are wrong, bytes 4..4")
FIRST(fill_misses_the_last_byte, memory_fill, if (pattern_bytes == 1 && size_bytes > 1) size_bytes -= 1)
CAUGHT(fill_halves_wide_patterns, xcpu, "test_fills.py::test_fills_repeat_the_pattern[16]", "filled with 16 bytes")
FIRST(fill_halves_wide_patterns, memory_fill, if (pattern_bytes == 16) pattern_bytes = 8)

/* Until somebody waits, which nobody does for a device that is not asynchronous. */
CAUGHT(fills_are_left_for_later, xcpu, "test_fills.py::test_fills_repeat_the_pattern[1]",
       "filled with 1 bytes at offset")
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

CAUGHT(fill_reads_the_pattern_late, async, "test_fills.py::test_the_pattern_is_read_before_the_call_returns",
       "a fill whose pattern was overwritten after the call")
FAULT(fill_reads_the_pattern_late, memory_fill) {
  void* fill = KEPT(late_fill, dst, pattern, pattern_bytes, size_bytes);
  return good.core.stream_host_function(device, stream, run_late_fill, fill);
}

/* ---- memory ---- */

CAUGHT(free_leaks, fake, "test_leaks.py::test_memory_is_not_lost", "the process grew by")
ANSWERS(free_leaks, memory_free, TB_STATUS_OK)

static void* shared_block;

CAUGHT(small_blocks_overlap, fake, "test_allocation.py::test_live_memory_is_distinct", "overlap memory of")
FAULT(small_blocks_overlap, memory_allocate) {
  if (kind != TB_MEMORY_DEVICE || size_bytes > 16) return GOOD(memory_allocate);
  if (!shared_block) good.core.memory_allocate(device, kind, 64, stream, &shared_block);
  *out_ptr = shared_block;
  return TB_STATUS_OK;
}

ANSWERS(small_blocks_overlap, memory_free, ptr == shared_block ? TB_STATUS_OK : GOOD(memory_free))

#define SHIFT 16

CAUGHT(blocks_are_misaligned, xcpu, "test_allocation.py::test_memory_is_aligned[DEVICE]", "are not aligned to 64 bytes")
FAULT(blocks_are_misaligned, memory_allocate) {
  void* ptr;
  const tb_status status = good.core.memory_allocate(device, kind, size_bytes + SHIFT, stream, &ptr);
  if (status == TB_STATUS_OK) *out_ptr = (char*)ptr + SHIFT;
  return status;
}

FAULT(blocks_are_misaligned, memory_free) {
  return good.core.memory_free(device, kind, (char*)ptr - SHIFT, size_bytes + SHIFT, stream);
}

CAUGHT(threads_get_the_same_block, xcpu, "test_threads.py::test_threads_use_one_device_at_once", "of 8, turn")
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
CAUGHT(unregister_fails, xcpu, "test_host_registration.py::test_registered_memory_is_copied",
       "host_unregister failed with INVALID_ARGUMENT")
ANSWERS(unregister_fails, host_unregister, host->fail(TB_STATUS_INVALID_ARGUMENT, "%p is not registered", ptr))
CAUGHT(access_is_a_bit_mask, xcpu, "test_peers.py::test_peer_access_is_yes_or_no",
       "peer_can_access(0, 1) answered [2, 2]")
ANSWERS(access_is_a_bit_mask, peer_can_access, (*out_can_access = 1 << peer, TB_STATUS_OK))

static int ran_out;

CAUGHT(memory_stays_full, xcpu, "test_allocation.py::test_memory_is_there_after_a_request_failed",
       "could not be allocated after a request that was too large")
CAUGHT(memory_stays_full, small thorough, "test_allocation.py::test_memory_is_there_after_it_ran_out",
       "could not be allocated after memory ran out and was freed")
CAUGHT(memory_stays_full, async, "async_/test_memory_limits.py::test_more_than_the_device_has", "out of memory")
FAULT(memory_stays_full, memory_allocate) {
  const tb_status status = ran_out ? host->fail(TB_STATUS_OUT_OF_MEMORY, "still full") : GOOD(memory_allocate);
  ran_out |= status == TB_STATUS_OUT_OF_MEMORY;
  return status;
}

CAUGHT(full_memory_is_internal, xcpu, "test_allocation.py::test_too_large_a_request_is_out_of_memory",
       "returned INTERNAL instead of OUT_OF_MEMORY")
THEN(full_memory_is_internal, memory_allocate,
     if (status == TB_STATUS_OUT_OF_MEMORY) status = host->fail(TB_STATUS_INTERNAL, "driver error 2"))
CAUGHT(failures_write_pointers, xcpu, "test_allocation.py::test_too_large_a_request_is_out_of_memory",
       "memory_allocate failed but wrote to out_ptr")
FIRST(failures_write_pointers, memory_allocate, *out_ptr = NULL)

CAUGHT(refused_memory_is_taken, xcpu, "test_errors.py::test_refused_memory_is_not_taken",
       "or more, in each of 6 rounds: a side effect")
FAULT(refused_memory_is_taken, memory_allocate) {
  void* lost;
  const tb_status status = GOOD(memory_allocate);
  if (status == TB_STATUS_UNSUPPORTED) good.core.memory_allocate(device, TB_MEMORY_DEVICE, size_bytes, stream, &lost);
  return status;
}

CAUGHT(refusals_leak, xcpu thorough, "test_leaks.py::test_queries_and_failures_leave_nothing", "memory is lost")
FIRST(refusals_leak, memory_allocate, if (kind > TB_MEMORY_SHARED) memset(malloc(512), 1, 512))
CAUGHT(unknown_kinds_are_device_memory, xcpu, "test_errors.py::test_memory_of_an_unknown_kind_is_unsupported[77]",
       "memory_allocate of kind 77 returned OK instead of UNSUPPORTED")
FIRST(unknown_kinds_are_device_memory, memory_allocate, if (kind > TB_MEMORY_SHARED) kind = TB_MEMORY_DEVICE)

/* Device 1 gets the block that device 0 got last, if it has the right size. */
static void* block_of_device_0;
static uint64_t size_on_device_0;

CAUGHT(device_1_aliases_device_0, xcpu, "test_peers.py::test_devices_do_not_share_memory",
       "xcpu:0: after the other devices were written")
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

CAUGHT(decommits_leak, xcpu, "test_virtual_memory.py::test_neighbours_stay_when_a_part_goes", "is committed already")
CAUGHT(decommits_leak, xcpu, "test_virtual_memory.py::test_committed_memory_is_not_lost", "is committed already")
ANSWERS(decommits_leak, memory_decommit, TB_STATUS_OK)
CAUGHT(commits_are_internal_when_full, small thorough, "test_virtual_memory.py::test_full_memory_is_out_of_memory",
       "is reported as INTERNAL instead of OUT_OF_MEMORY")
THEN(commits_are_internal_when_full, memory_commit,
     if (status == TB_STATUS_OUT_OF_MEMORY) status = host->fail(TB_STATUS_INTERNAL, "driver error 2"))

static char* committed_before;

CAUGHT(commits_clear_the_last, xcpu, "test_virtual_memory.py::test_committed_memory_keeps_its_contents",
       "after more was committed")
THEN(commits_clear_the_last, memory_commit,
     if (!status && committed_before) good.core.memory_fill(device, committed_before, "", 1, 1, NULL);
     if (!status) committed_before = ptr)
FIRST(commits_clear_the_last, memory_decommit, if (ptr == committed_before) committed_before = NULL)

#define PART_BYTES (2 << 20)

CAUGHT(reservations_are_misaligned, xcpu, "test_virtual_memory.py::test_reservations_are_aligned_and_distinct",
       "are not aligned to")
FAULT(reservations_are_misaligned, address_reserve) {
  void* base;
  const tb_status status = good.core.address_reserve(device, size_bytes + PART_BYTES, &base);
  if (status == TB_STATUS_OK) *out_ptr = (char*)base + 4096;
  return status;
}

ANSWERS(reservations_are_misaligned, address_release,
        good.core.address_release(device, (char*)ptr - 4096, size_bytes + PART_BYTES))
CAUGHT(addresses_leak, xcpu thorough, "test_virtual_memory.py::test_addresses_are_not_lost", "has no room for")
ANSWERS(addresses_leak, address_release, TB_STATUS_OK)

/* Whether an address lies in what was committed last. */
static char* committed;

#define IS_COMMITTED(ptr) (committed && (char*)(ptr) >= committed && (char*)(ptr) < committed + PART_BYTES)
#define NOTES_COMMITS(fault) THEN(fault, memory_commit, if (!status) committed = ptr)

CAUGHT(commits_are_for_the_default_stream, async,
       "test_virtual_memory.py::test_committed_memory_is_usable_from_every_stream", "committed memory at 0")
NOTES_COMMITS(commits_are_for_the_default_stream)
FIRST(commits_are_for_the_default_stream, memory_copy, if (stream && IS_COMMITTED(dst)) return TB_STATUS_OK)
CAUGHT(commits_are_not_for_peers, xcpu, "test_virtual_memory.py::test_committed_memory_is_for_peers",
       "copied from xcpu")
NOTES_COMMITS(commits_are_not_for_peers)
FIRST(commits_are_not_for_peers, memory_copy, if (kind == TB_COPY_PEER && IS_COMMITTED(dst)) return TB_STATUS_OK)
CAUGHT(kernels_of_peers_have_no_commits, modules, "test_virtual_memory.py::test_kernels_of_peers_use_committed_memory",
       "that was committed after peer_can_access")
NOTES_COMMITS(kernels_of_peers_have_no_commits)
FIRST(kernels_of_peers_have_no_commits, module_launch, if (IS_COMMITTED(params[0].data)) return TB_STATUS_OK)
CAUGHT(copies_end_with_a_part, xcpu, "test_virtual_memory.py::test_parts_that_touch_are_one_allocation",
       "written over the border of two parts")
NOTES_COMMITS(copies_end_with_a_part)
FIRST(copies_end_with_a_part, memory_copy,
      if (committed && (uintptr_t)dst % PART_BYTES + size_bytes > PART_BYTES)
          size_bytes = PART_BYTES - (uintptr_t)dst % PART_BYTES)
CAUGHT(commits_are_not_for_the_host, xcpu, "test_virtual_memory.py::test_committed_memory_is_for_the_host", CRASHED)
THEN(commits_are_not_for_the_host, memory_commit, if (!status) mprotect(ptr, size_bytes, PROT_NONE))

/* A part is known by itself. */
CAUGHT(parts_are_allocations, xcpu, "test_virtual_memory.py::test_parts_that_touch_are_one_to_queries",
       "says 4096 bytes")
THEN(parts_are_allocations, memory_query,
     if (!status && out_info->kind == TB_MEMORY_DEVICE) out_info->size_bytes = 4096)
CAUGHT(reservations_take_memory, xcpu, "test_virtual_memory.py::test_reservations_take_no_memory",
       "could not be reserved")
FIRST(reservations_take_memory, address_reserve,
      if (size_bytes > (uint64_t)1 << 40) return host->fail(TB_STATUS_OUT_OF_MEMORY, "no pages are left"))

static int num_allocated;

CAUGHT(blocks_are_counted_once, xcpu, "test_allocation.py::test_freed_memory_is_used_again", "no block is left")
FIRST(blocks_are_counted_once, memory_allocate,
      if (++num_allocated > 40) return host->fail(TB_STATUS_OUT_OF_MEMORY, "no block is left"))

static void* allocated_before;

CAUGHT(new_memory_clears_the_last, xcpu, "test_allocation.py::test_live_memory_keeps_its_contents",
       "after other memory was written")
THEN(new_memory_clears_the_last, memory_allocate,
     if (!status && allocated_before) good.core.memory_fill(device, allocated_before, "", 1, 1, NULL);
     if (!status) allocated_before = *out_ptr)
FIRST(new_memory_clears_the_last, memory_free, if (ptr == allocated_before) allocated_before = NULL)

/* With pages that the host must not touch. */
CAUGHT(pinned_memory_is_device_memory, protect,
       "test_allocation.py::test_memory_of_the_host_is_read_and_written_by_the_host[HOST]", CRASHED)
FIRST(pinned_memory_is_device_memory, memory_allocate, if (kind == TB_MEMORY_HOST) kind = TB_MEMORY_DEVICE)
FIRST(pinned_memory_is_device_memory, memory_free, if (kind == TB_MEMORY_HOST) kind = TB_MEMORY_DEVICE)

CAUGHT(pinned_memory_is_not_read, xcpu, "test_allocation.py::test_memory_of_the_host_is_copied_to_the_device",
       "a copy from TB_MEMORY_HOST")
FAULT(pinned_memory_is_not_read, memory_copy) {
  tb_pointer_info info = {.struct_size = sizeof info};
  good.core.memory_query(src, &info);
  return kind == TB_COPY_HOST_TO_DEVICE && info.kind == TB_MEMORY_HOST ? TB_STATUS_OK : GOOD(memory_copy);
}

CAUGHT(all_memory_is_free, xcpu, "test_memory_info.py::test_allocations_show_in_memory_info",
       "memory_info says that 0 bytes")
THEN(all_memory_is_free, memory_info, *out_free_bytes = *out_total_bytes)
CAUGHT(more_is_free_than_there_is, xcpu, "test_memory_info.py::test_free_memory_is_at_most_all_memory",
       "bytes are free")
THEN(more_is_free_than_there_is, memory_info, *out_free_bytes = *out_total_bytes + 4096)
CAUGHT(only_bases_are_known, xcpu, "test_memory_query.py::test_addresses_of_memory_are_known[DEVICE]",
       "memory_query of offset 1 says kind 3")
THEN(only_bases_are_known, memory_query, if (!status && out_info->base != ptr) out_info->kind = TB_MEMORY_UNKNOWN)
CAUGHT(query_overruns, xcpu, "test_memory_query.py::test_the_answer_is_no_longer_than_asked[16]",
       "wrote past the caller's struct")
FIRST(query_overruns, memory_query, out_info->struct_size = sizeof *out_info)
CAUGHT(everything_is_ours, xcpu, "test_memory_query.py::test_foreign_addresses_are_unknown", "not TB_MEMORY_UNKNOWN")
THEN(everything_is_ours, memory_query,
     if (!status && out_info->kind == TB_MEMORY_UNKNOWN) out_info->kind = TB_MEMORY_DEVICE)

/* Mappings that do not nest: the first unmap ends them all. */
static int is_mapped, mapped_device;
static void* mapped_ptr;
static uint64_t mapped_size;

CAUGHT(mappings_do_not_nest, protect, "test_host_access.py::test_mapped_ranges_nest_and_overlap", CRASHED)
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
CAUGHT(mapping_shows_nothing, protect, "test_host_access.py::test_the_host_loads_what_the_device_holds",
       "what the host loaded")
FIRST(mapping_shows_nothing, memory_map, good.core.memory_fill(device, ptr, "", 1, size_bytes, NULL),
      finish(device, NULL))

static char* stored_before;

CAUGHT(stores_are_lost, protect, "test_host_access.py::test_the_device_sees_what_the_host_stores",
       "after the host stored 100 bytes at offset 77")
THEN(stores_are_lost, memory_map, stored_before = memcpy(malloc(size_bytes), ptr, size_bytes))
FIRST(stores_are_lost, memory_unmap, if (access & TB_MAP_WRITE) memcpy(ptr, stored_before, size_bytes))

/* Cleared for safety, by a driver whose every stream waits for the default stream, but for those that do not. */
CAUGHT(new_memory_is_cleared_on_the_default_stream, async, "test_allocation.py::test_new_memory_is_usable_at_once",
       "new memory, written on a created stream while the default stream was held")
THEN(new_memory_is_cleared_on_the_default_stream, memory_allocate,
     if (!status && kind == TB_MEMORY_DEVICE) good.core.memory_fill(device, *out_ptr, "", 1, size_bytes, NULL))

/* It declares TB_CAP_STREAM_ALLOC, and what is freed is the next to be given out. */
static void* freed_last;
static uint64_t size_freed_last;

CAUGHT(freed_memory_is_given_out_at_once, async, "test_allocation.py::test_freed_memory_serves_the_work_before",
       "a copy from memory that was freed after it on its stream")
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

CAUGHT(imports_are_copies, ipc, "test_ipc.py::test_processes_share_memory",
       "xcpu:0: after another process wrote to exported memory")
CAUGHT(imports_are_copies, ipc thorough, "tensor/test_other_processes.py::test_both_processes_see_what_one_writes",
       "after another process wrote to a part that was sent")
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

CAUGHT(imports_start_elsewhere, ipc, "test_ipc.py::test_processes_share_memory", "xcpu:0: memory of another process")
THEN(imports_start_elsewhere, ipc_import, if (!status) out_ptr[0] = (char*)out_ptr[0] + 64)
ANSWERS(imports_start_elsewhere, ipc_close, good.core.ipc_close(device, (char*)ptr - 64))

CAUGHT(closing_wipes_memory, ipc, "test_ipc.py::test_importing_and_closing_loses_nothing",
       "memory of another process that was imported 200 times")
FAULT(closing_wipes_memory, ipc_close) {
  const char zero = 0;
  tb_pointer_info info = {.struct_size = sizeof info};
  tb_status status;
  good.core.memory_query(ptr, &info);
  status = good.core.memory_fill(device, ptr, &zero, 1, info.size_bytes, NULL);
  if (!status) status = finish(device, NULL);
  return status ? status : GOOD(ipc_close);
}

CAUGHT(nothing_is_closed, ipc, "test_ipc.py::test_importing_and_closing_loses_nothing", "more mappings")
ANSWERS(nothing_is_closed, ipc_close, TB_STATUS_OK)

CAUGHT(gone_memory_is_imported, ipc, "test_ipc.py::test_exported_memory_is_freed",
       "ipc_import of memory that its process has freed returned OK")
CAUGHT(gone_memory_is_imported, ipc, "test_ipc.py::test_memory_of_a_process_that_has_ended",
       "ipc_import of memory of a process that has ended returned OK")
FAULT(gone_memory_is_imported, ipc_import) {
  const tb_status status = GOOD(ipc_import);
  return status ? good.core.memory_allocate(device, TB_MEMORY_DEVICE, 4096, NULL, out_ptr) : status;
}

CAUGHT(all_handles_are_the_first, ipc, "test_ipc.py::test_handles_name_their_allocation",
       "one of several allocations of another process")
CAUGHT(all_handles_are_the_first, ipc thorough, "tensor/test_other_processes.py::test_tensors_are_told_apart",
       "shows other values in another process")
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

CAUGHT(properties_change, xcpu, "test_properties.py::test_properties_stay", "answered differently than before")
FAULT(properties_change, device_properties) {
  static int32_t calls;
  const tb_status status = GOOD(device_properties);
  if (out_properties->struct_size == sizeof *out_properties) out_properties->multiprocessor_count += ++calls;
  return status;
}

CAUGHT(properties_overrun, xcpu, "test_properties.py::test_a_host_of_an_older_version_gets_what_it_knows[112]",
       "wrote past the caller's struct_size of 112")
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

CAUGHT(alignment_is_odd, xcpu, "test_properties.py::test_properties_are_possible", "allocation_alignment_bytes is 96")
CHANGED(alignment_is_odd, p->allocation_alignment_bytes = 96)
CAUGHT(priorities_are_reversed, xcpu, "test_properties.py::test_properties_are_possible",
       "stream_priority_highest is 2 and _lowest -3")
CHANGED(priorities_are_reversed, p->stream_priority_lowest = -3; p->stream_priority_highest = 2)
CAUGHT(name_is_not_terminated, xcpu, "test_properties.py::test_properties_are_possible", "name fills all 64 bytes")
CHANGED(name_is_not_terminated, memset(p->name, 'x', sizeof p->name))
CAUGHT(devices_differ, xcpu, "test_properties.py::test_common_capabilities_are_the_same_on_all_devices",
       "differ in ['HOST_COHERENT']")
CHANGED(devices_differ, if (device == 1) p->capabilities &= ~TB_CAP_HOST_COHERENT)
CAUGHT(unknown_capabilities, xcpu, "test_properties.py::test_properties_are_possible",
       "capabilities has the bits 0x1000")
CHANGED(unknown_capabilities, p->capabilities |= 1ull << 60)
CAUGHT(blocks_have_more_items_than_room, xcpu, "test_properties.py::test_properties_are_possible",
       "max_block_items is 1024, and max_block [8, 8, 8] has room for 512")
CHANGED(blocks_have_more_items_than_room, p->max_block[0] = p->max_block[1] = p->max_block[2] = 8;
        p->max_block_items = 1024)
CAUGHT(blocks_are_smaller_than_they_say, modules, "test_module_launches.py::test_the_largest_block_runs",
       "module_launch failed with")
CHANGED(blocks_are_smaller_than_they_say, p->max_block[0] = p->max_block_items = 64)
CAUGHT(preferred_blocks_are_too_large, xcpu, "test_properties.py::test_properties_are_possible",
       "preferred_block_items is 512, more than max_block_items, 256")
CHANGED(preferred_blocks_are_too_large, p->max_block_items = 256; p->preferred_block_items = 512)
CAUGHT(allocations_are_larger_than_memory, xcpu, "test_properties.py::test_properties_are_possible",
       "0 means as much as there is")
CHANGED(allocations_are_larger_than_memory, p->max_allocation_bytes = p->total_memory_bytes + 1)
CAUGHT(larger_allocations_succeed, xcpu, "test_allocation.py::test_more_than_one_allocation_may_have_is_out_of_memory",
       "max_allocation_bytes is 1048576, and a request for 1048577 bytes returned OK")
CHANGED(larger_allocations_succeed, p->max_allocation_bytes = 1 << 20)
CAUGHT(driver_version_is_not_terminated, xcpu, "test_properties.py::test_properties_are_possible",
       "driver_version fills all 64 bytes")
CHANGED(driver_version_is_not_terminated, memset(p->driver_version, 'v', sizeof p->driver_version))
CAUGHT(driver_version_is_no_text, xcpu, "test_properties.py::test_properties_are_possible",
       "driver_version is no UTF-8")
CHANGED(driver_version_is_no_text, memcpy(p->driver_version, "\xff\xfe", 3))
CAUGHT(computes_in_what_it_cannot_store, xcpu, "test_properties.py::test_properties_are_possible",
       "compute_dtype_mask has float64, which dtype_mask does not")
CHANGED(computes_in_what_it_cannot_store, p->dtype_mask[0] = TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32);
        p->compute_dtype_mask[0] = TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 64))
CAUGHT(properties_claim_what_is_not_there, xcpu,
       "test_properties.py::test_a_host_of_a_newer_version_learns_what_was_filled", "bytes have a meaning")
FAULT(properties_claim_what_is_not_there, device_properties) {
  const uint64_t room = out_properties->struct_size;
  const tb_status status = GOOD(device_properties);
  out_properties->struct_size = room;
  return status;
}

CAUGHT(ipc_is_not_declared, ipc, "test_slots.py::test_ipc_slots_are_declared", "TB_CAP_IPC is not declared")
CHANGED(ipc_is_not_declared, p->capabilities &= ~TB_CAP_IPC)
CAUGHT(nothing_can_be_mapped, xcpu, "test_slots.py::test_memory_that_is_not_coherent_can_be_mapped",
       "memory_map and memory_unmap are unset")
CHANGED(nothing_can_be_mapped, p->capabilities &= ~TB_CAP_HOST_COHERENT)
CAUGHT(nothing_is_unregistered, xcpu,
       "test_slots.py::test_slots_that_belong_together_are_set_together[host_register-host_unregister]",
       "only host_unregister is unset")
CHANGE(nothing_is_unregistered, MADE(host_unregister) = NULL)
CAUGHT(more_memory_than_addresses, xcpu, "test_properties.py::test_properties_are_possible", "total_memory_bytes is 1")
CHANGED(more_memory_than_addresses, p->total_memory_bytes = 1ull << 60)
CAUGHT(uuids_are_equal, xcpu, "test_properties.py::test_uuids_tell_devices_apart", "two devices have the same uuid")
CHANGED(uuids_are_equal, memset(p->uuid, 7, sizeof p->uuid))
CAUGHT(graphs_without_table, async, "test_slots.py::test_graphs_are_declared_with_their_table", "TB_CAP_GRAPH is True")
CHANGE(graphs_without_table, made.graph.struct_size = 0)
CAUGHT(timing_without_its_slot, async, "test_slots.py::test_a_capability_has_its_slot[EVENT_TIMING]",
       "TB_CAP_EVENT_TIMING is declared, but the slot event_elapsed is unset")
CHANGE(timing_without_its_slot, MADE(event_elapsed) = NULL)
CAUGHT(asynchronous_without_wait, async, "test_properties.py::test_properties_are_possible",
       "which needs slots that are not set: stream_wait_event")
CHANGE(asynchronous_without_wait, MADE(stream_wait_event) = NULL)

CAUGHT(device_count_changes, xcpu, "test_properties.py::test_the_number_of_devices_stays", "and 2 before")
FAULT(device_count_changes, device_count) {
  static int calls;
  const tb_status status = GOOD(device_count);
  if (++calls > 2) *out_count -= 1;
  return status;
}

/* ---- streams ---- */

CAUGHT(synchronize_returns_early, async, "test_streams.py::test_synchronize_waits_for_all_work",
       "stream_synchronize returned while work on the stream was not complete")
CAUGHT(synchronize_returns_early, async, "async_/test_one_stream.py::test_synchronizing_completes_everything",
       "returned before a copy to the host was done")
ANSWERS(synchronize_returns_early, stream_synchronize, TB_STATUS_OK)
CAUGHT(copies_are_waited_for, async, "async_/test_one_stream.py::test_enqueuing_returns_before_the_work_is_done",
       "400 ms of copies were done when the last was enqueued")
THEN(copies_are_waited_for, memory_copy,
     if (!status) status = good.core.stream_synchronize(dst_device < 0 ? src_device : dst_device, stream))
CAUGHT(synchronize_hangs, async hangs, "test_streams.py::test_synchronize_waits_for_all_work", CRASHED)
FIRST(synchronize_hangs, stream_synchronize, while (stream) pause_ms(1000))
CAUGHT(device_synchronize_forgets_streams, async, "test_streams.py::test_device_synchronize_waits_for_all_streams",
       "work on a created stream was not complete")
CAUGHT(device_synchronize_forgets_streams, async,
       "async_/test_streams.py::test_synchronizing_the_device_waits_for_every_stream",
       "synchronize() returned before the work on stream")
ANSWERS(device_synchronize_forgets_streams, device_synchronize, good.core.stream_synchronize(device, NULL))
CAUGHT(stream_query_waits, async, "test_streams.py::test_a_query_tells_whether_work_is_pending",
       "stream_query blocked until the work on the stream was complete")
ANSWERS(stream_query_waits, stream_query, GOOD(stream_synchronize))
CAUGHT(stream_is_always_idle, async, "test_streams.py::test_a_query_tells_whether_work_is_pending",
       "stream_query says that all is complete, but the stream is held")
CAUGHT(stream_is_always_idle, async, "async_/test_one_stream.py::test_a_query_that_says_done_is_right",
       "query() was True before")
ANSWERS(stream_is_always_idle, stream_query, TB_STATUS_OK)

CAUGHT(priorities_are_refused, async, "test_streams.py::test_streams_take_every_priority",
       "stream_create failed with INVALID_ARGUMENT")
FAULT(priorities_are_refused, stream_create) {
  tb_device_properties properties;
  properties.struct_size = sizeof properties;
  good.core.device_properties(device, &properties);
  if (priority == properties.stream_priority_highest)
    return host->fail(TB_STATUS_INVALID_ARGUMENT, "no priority %d", (int)priority);
  return GOOD(stream_create);
}

CAUGHT(one_stream_for_all, async, "test_streams.py::test_many_streams_exist_at_once", "gave the same stream twice")
FAULT(one_stream_for_all, stream_create) {
  static tb_stream* only[64];
  const tb_status status = only[device] ? TB_STATUS_OK : good.core.stream_create(device, priority, &only[device]);
  if (status == TB_STATUS_OK) *out_stream = only[device];
  return status;
}

ANSWERS(one_stream_for_all, stream_destroy, TB_STATUS_OK)

CAUGHT(streams_leak, async thorough, "test_leaks.py::test_streams_are_not_lost", "memory is lost")
FIRST(streams_leak, stream_destroy, memset(malloc(1 << 14), 1, 1 << 14))

CAUGHT(few_streams_exist, async, "test_streams.py::test_many_streams_exist_at_once", "there are 16 queues")
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

CAUGHT(destroyed_stream_drops_work, async, "test_streams.py::test_a_stream_that_is_destroyed_completes_its_work",
       "a copy on a stream that was destroyed")
FAULT(destroyed_stream_drops_work, memory_copy) {
  if (!stream || kind != TB_COPY_HOST_TO_DEVICE) return GOOD(memory_copy);
  remember(stream);
  return good.core.stream_host_function(dst_device, stream, run_checked_copy,
                                        KEPT(checked_copy, dst, src, size_bytes, stream));
}

FIRST(destroyed_stream_drops_work, stream_destroy, forget(stream))

/* ---- events ---- */

CAUGHT(event_completes_early, async, "test_events.py::test_an_event_is_pending_while_the_work_before_it_is",
       "the event is complete, but work that was enqueued before its record is not")
CAUGHT(event_completes_early, async, "async_/test_pinned_memory.py::test_freed_sources_are_not_overwritten",
       "read memory that later copies had taken over")
ANSWERS(event_completes_early, event_query, TB_STATUS_OK)
CAUGHT(event_synchronize_returns_early, async, "test_events.py::test_event_synchronize_waits_for_the_work_before_it",
       "event_synchronize returned while work before the record was not complete")
ANSWERS(event_synchronize_returns_early, event_synchronize, TB_STATUS_OK)
CAUGHT(event_never_completes, async, "test_events.py::test_an_event_that_was_never_recorded_is_complete",
       "event_query of an event never recorded is NOT_READY")
ANSWERS(event_never_completes, event_query, TB_STATUS_NOT_READY)
CAUGHT(not_ready_is_an_error, async, "test_events.py::test_an_event_is_pending_while_the_work_before_it_is",
       "returned INTERNAL instead of NOT_READY: driver error 600")
THEN(not_ready_is_an_error, event_query,
     if (status == TB_STATUS_NOT_READY) status = host->fail(TB_STATUS_INTERNAL, "driver error 600"))
CAUGHT(event_query_waits, async, "test_events.py::test_an_event_is_pending_while_the_work_before_it_is",
       "event_record or event_query blocked")
ANSWERS(event_query_waits, event_query, GOOD(event_synchronize))
CAUGHT(wait_is_ignored, async, "test_events.py::test_a_stream_waits_for_an_event_of_another",
       "a stream of xcpu:0 did not wait for the event of xcpu:0")
CAUGHT(wait_is_ignored, async, "async_/test_autograd.py::test_a_prefetching_training_loop",
       "weights differ from those of batches in turn")
ANSWERS(wait_is_ignored, stream_wait_event, TB_STATUS_OK)

CAUGHT(wait_is_for_own_events, async, "test_events.py::test_a_stream_waits_for_an_event_of_another_device",
       "a stream of xcpu:1 did not wait for the event of xcpu:0")
CAUGHT(wait_is_for_own_events, async, "async_/test_devices.py::test_a_stream_waits_for_another_device",
       "did not wait for an event of device 0")
FAULT(wait_is_for_own_events, stream_wait_event) {
  const tb_status status = GOOD(event_query); /* refused for an event of another device */
  return status == TB_STATUS_INVALID_ARGUMENT ? TB_STATUS_OK : GOOD(stream_wait_event);
}

CAUGHT(wait_blocks, async, "test_events.py::test_waiting_for_an_event_does_not_block_the_host",
       "stream_wait_event blocked until the work")
FAULT(wait_blocks, stream_wait_event) {
  const tb_status status = GOOD(event_synchronize);
  return status ? status : GOOD(stream_wait_event);
}

CAUGHT(only_the_first_record_counts, async, "test_events.py::test_a_second_record_replaces_the_first",
       "a second record replaces the first")
CAUGHT(only_the_first_record_counts, async, "async_/test_events.py::test_an_event_recorded_again_means_the_later_point",
       "did not replace the one before")
ANSWERS(only_the_first_record_counts, event_record, remember(event) ? GOOD(event_record) : TB_STATUS_OK)
FIRST(only_the_first_record_counts, event_destroy, forget(event))
/* ... of a device without host functions, with which the test above holds a stream. */
CAUGHT(only_the_first_record_counts_alone, async, "test_events.py::test_a_second_record_is_behind_copies",
       "a second record replaces the first")
CAUGHT(only_the_first_record_counts_alone, async, "test_events.py::test_a_wait_behind_copies[before the wait]",
       "did not wait for the last record, with another before the wait")
CHANGE(only_the_first_record_counts_alone, MADE(stream_host_function) = NULL)
ANSWERS(only_the_first_record_counts_alone, event_record, remember(event) ? GOOD(event_record) : TB_STATUS_OK)
FIRST(only_the_first_record_counts_alone, event_destroy, forget(event))
CAUGHT(destroying_a_pending_event_crashes, async, "test_events.py::test_an_event_may_be_destroyed_while_it_is_pending",
       CRASHED)
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

CAUGHT(destroying_an_event_ends_waits, async, "test_events.py::test_an_event_may_be_destroyed_while_it_is_pending",
       "a stream of xcpu:0 did not wait for the event of xcpu:0")
FAULT(destroying_an_event_ends_waits, stream_wait_event) {
  remember(event);
  return good.core.stream_host_function(device, stream, poll_event, KEPT(polled_event, device, event));
}

FIRST(destroying_an_event_ends_waits, event_destroy, forget(event), pause_ms(3))
CAUGHT(waits_are_for_the_last_record, async, "test_events.py::test_a_wait_behind_copies[after the wait]",
       "did not wait for the last record, with another after the wait")
CHANGE(waits_are_for_the_last_record, MADE(stream_host_function) = NULL)
FAULT(waits_are_for_the_last_record, stream_wait_event) {
  remember(event);
  return good.core.stream_host_function(device, stream, poll_event, KEPT(polled_event, device, event));
}
FIRST(waits_are_for_the_last_record, event_destroy, forget(event))
CAUGHT(events_leak, async thorough, "test_leaks.py::test_events_are_not_lost", "memory is lost")
ANSWERS(events_leak, event_destroy, TB_STATUS_OK)

CAUGHT(one_event_for_all, async, "test_events.py::test_many_events_exist_at_once", "gave the same event twice")
FAULT(one_event_for_all, event_create) {
  static tb_event* only[64];
  const tb_status status = only[device] ? TB_STATUS_OK : good.core.event_create(device, flags, &only[device]);
  if (status == TB_STATUS_OK) *out_event = only[device];
  return status;
}

ANSWERS(one_event_for_all, event_destroy, TB_STATUS_OK)
CAUGHT(unknown_flags_are_taken, async, "test_events.py::test_an_event_with_unknown_flags_is_unsupported[0x80]",
       "event_create with flags 0x80 returned OK")
FIRST(unknown_flags_are_taken, event_create, flags &= TB_EVENT_TIMING)
CAUGHT(elapsed_in_microseconds, async, "test_event_times.py::test_times_are_in_nanoseconds", "ns for work of 30000000")
THEN(elapsed_in_microseconds, event_elapsed, if (!status) out_elapsed_ns[0] /= 1000)
CAUGHT(elapsed_runs_backwards, async, "test_event_times.py::test_time_does_not_run_backwards",
       "ns from a record to a later one")
ANSWERS(elapsed_runs_backwards, event_elapsed, good.core.event_elapsed(device, end, start, out_elapsed_ns))
CAUGHT(pending_events_have_times, async, "test_event_times.py::test_the_time_of_a_pending_event_is_not_ready",
       "of a pending event returned OK instead of NOT_READY")
THEN(pending_events_have_times, event_elapsed,
     if (status == TB_STATUS_NOT_READY) out_elapsed_ns[0] = status = TB_STATUS_OK)
/* As in drivers that read two time stamps and ask no further. */
CAUGHT(devices_share_a_clock, async, "test_event_times.py::test_the_time_between_events_of_two_devices_is_refused",
       "returned OK, not INVALID_ARGUMENT")
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

CAUGHT(unrecorded_events_have_times, async, "test_event_times.py::test_the_time_of_an_event_never_recorded_is_refused",
       "never recorded returned OK, not INVALID_ARGUMENT")
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

CAUGHT(function_runs_twice, async, "test_host_functions.py::test_host_functions_run_once_and_in_order",
       "50 host functions were called 100 times")
FAULT(function_runs_twice, stream_host_function) {
  return good.core.stream_host_function(device, stream, call_twice, KEPT(host_call, fn, arg));
}

CAUGHT(function_never_runs, async, "test_host_functions.py::test_host_functions_run_once_and_in_order",
       "50 of 50 host functions were never called")
ANSWERS(function_never_runs, stream_host_function, TB_STATUS_OK)
CAUGHT(function_runs_at_once, async slow, "test_host_functions.py::test_host_functions_run_after_what_is_before_them",
       "a host function ran before the copy that precedes it")
ANSWERS(function_runs_at_once, stream_host_function, (fn(arg), TB_STATUS_OK))

static int num_functions; /* since somebody waited */

CAUGHT(few_functions_are_kept, async, "test_host_functions.py::test_host_functions_of_many_streams_all_run",
       "host functions were called")
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

CAUGHT(nobody_waits_for_the_function, async, "test_host_functions.py::test_what_follows_a_host_function_waits_for_it",
       "a copy did not wait for the function before it")
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

CAUGHT(functions_wait_for_each_other, async, "test_host_functions.py::test_a_host_function_may_block",
       "one on another stream does not run")
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

CAUGHT(functions_block_copies, async, "test_host_functions.py::test_a_host_function_may_block",
       "copies on another stream wait for it")
ANSWERS(functions_block_copies, stream_host_function,
        good.core.stream_host_function(device, stream, call_in_the_way, KEPT(host_call, fn, arg)))
FIRST(functions_block_copies, memory_copy, wait_for_functions())

static tb_host_function waiting_function;
static void* waiting_arg;

/* Called when somebody waits, by a driver without a thread of its own. */
CAUGHT(functions_run_in_waits, async, "test_host_functions.py::test_host_functions_run_while_the_caller_goes_on",
       "a host function has not run")
FAULT(functions_run_in_waits, stream_host_function) {
  if (waiting_function) waiting_function(waiting_arg);
  waiting_function = fn, waiting_arg = arg;
  return TB_STATUS_OK;
}

FIRST(functions_run_in_waits, stream_synchronize, if (waiting_function) waiting_function(waiting_arg),
      waiting_function = NULL)

/* ---- threads and processes ---- */

static int32_t current_device; /* one for all threads */

CAUGHT(current_device_is_shared, xcpu, "test_threads.py::test_a_thread_changes_its_device",
       "threads share their current device")
ANSWERS(current_device_is_shared, thread_bind, (current_device = device, pause_ms(1), TB_STATUS_OK))
FIRST(current_device_is_shared, memory_allocate, device = current_device)

static __thread int32_t device_of_thread = -1; /* what memory_free needs, though nobody can set it */

CAUGHT(threads_cannot_be_bound, xcpu, "test_threads.py::test_a_new_thread_gives_back_what_another_has_made",
       "the thread has no device")
FIRST(threads_cannot_be_bound, memory_allocate, device_of_thread = device)
FIRST(threads_cannot_be_bound, memory_free,
      if (device_of_thread != device) return host->fail(TB_STATUS_INVALID_ARGUMENT, "the thread has no device"))

static int driver_was_forked;

static void note_fork(void) {
  driver_was_forked = 1;
}

CAUGHT(counting_starts_the_driver, xcpu, "test_processes.py::test_counting_devices_leaves_the_process_able_to_fork",
       "device_count must leave the process able to fork")
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

CAUGHT(exit_waits_for_the_device, async, "test_processes.py::test_a_process_ends_while_work_is_pending",
       "the process has not ended")
FAULT(exit_waits_for_the_device, initialize) {
  atexit(wait_at_exit);
  return good.core.initialize ? GOOD(initialize) : TB_STATUS_OK;
}

/* ---- what is not a slot: the host's services as the good device sees them, the entry, the other tables ---- */

static tb_status says_nothing(tb_status code, const char* format, ...) {
  return code;
}

CAUGHT(texts_are_lost, fake, "test_errors.py::test_failures_come_with_a_reason", "the reason is lost")
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

CAUGHT(texts_are_shared, xcpu, "test_errors.py::test_reasons_are_those_of_the_calling_thread",
       "a thread got the reason of another")
BEFORE(texts_are_shared, given_host.fail = says_the_last_text)

static unsigned char past_the_host[sizeof(tb_host) + 64];

CAUGHT(host_is_read_past_its_end, xcpu, "test_handshake.py::test_the_host_is_not_read_past_its_size", "ended with -11")
BEFORE(host_is_read_past_its_end, memcpy(past_the_host, host, sizeof past_the_host))

static int refuses;

CAUGHT(newer_hosts_are_refused, xcpu, "test_handshake.py::test_a_newer_host_opens_the_library",
       "made for version 1.1 only")
BEFORE(newer_hosts_are_refused, refuses = host->abi_minor > TB_ABI_MINOR;
       if (refuses) host->fail(TB_STATUS_INTERNAL, "made for version 1.%u only", (unsigned)TB_ABI_MINOR))

CAUGHT(other_majors_crash_it, xcpu, "test_handshake.py::test_a_host_of_another_major_version_gets_an_answer",
       "ended with -6")
BEFORE(other_majors_crash_it, if (host->abi_major != TB_ABI_MAJOR) abort())
CAUGHT(other_majors_get_no_reason, xcpu, "test_handshake.py::test_a_host_of_another_major_version_gets_an_answer",
       "returned NULL and gave no reason")
BEFORE(other_majors_get_no_reason, refuses = host->abi_major != TB_ABI_MAJOR)
CAUGHT(vendor_is_missing, fake, "test_handshake.py::test_vendor_and_version_are_said", "tb_plugin.vendor is NULL")
CHANGE(vendor_is_missing, plugin.vendor = NULL)
CAUGHT(plugin_is_too_long, fake, "test_handshake.py::test_struct_sizes_belong_to_the_minor_version",
       "tb_plugin declares 72 bytes, but version 1.1 has 64")
CHANGE(plugin_is_too_long, plugin.struct_size += 8)

static void list_keys_with_the_name(void) {
  static char key[64];
  static const char* keys[] = {key, NULL};
  snprintf(key, sizeof key, "%s.devices", plugin.name);
  plugin.option_keys = keys;
}

CAUGHT(option_keys_have_the_name, fake, "test_handshake.py::test_option_keys_are_names",
       "option_keys are listed without 'fake.'")
CHANGE(option_keys_have_the_name, list_keys_with_the_name())

static const void* moving_table(const char* name) {
  const void* table = made_table(name);
  return strcmp(name, "prof.1") ? table : memcpy(malloc(sizeof made.prof), table, sizeof made.prof);
}

CAUGHT(tables_move, fake, "test_handshake.py::test_tables_stay_where_they_are", "table('prof.1') was at")
CHANGE(tables_move, plugin.table = moving_table)

static const void* any_table(const char* name) {
  return &good;
}

CAUGHT(any_table_is_offered, xcpu, "test_handshake.py::test_an_unknown_table_is_not_offered", "is not NULL")
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

CAUGHT(kernel_is_listed_twice, example, "test_kernel_table.py::test_operators_are_listed_once",
       "listed twice: aten::sub.out")
CHANGE(kernel_is_listed_twice, copy_kernels(), changed_kernel.op = kernel_list[1]->op)
CAUGHT(kernel_has_no_function, example, "test_kernel_table.py::test_entries_are_well_formed",
       "entry 0 of kernels (aten::add.out) has no function")
CHANGE(kernel_has_no_function, copy_kernels(), changed_kernel.function = NULL)
CAUGHT(kernel_name_has_no_namespace, example, "test_kernel_table.py::test_entries_are_well_formed",
       "entry 0 of kernels is called 'add.out'")
CHANGE(kernel_name_has_no_namespace, copy_kernels(), changed_kernel.op = "add.out")

static const uint64_t mask_without_dtypes[TB_DTYPE_MASK_WORDS] = {1ull << 63};

CAUGHT(kernels_change, example, "test_kernel_table.py::test_entries_stay_as_they_are", "the list of kernels changed")
CHANGE(kernels_change, copy_kernels())
FIRST(kernels_change, memory_copy, changed_kernel.flags ^= 1)
CAUGHT(kernel_table_is_too_long, example, "test_kernel_table.py::test_the_table_has_its_size",
       "tb_kernel_table declares")
CHANGE(kernel_table_is_too_long, made.kernels.struct_size += 8)
CAUGHT(kernel_takes_no_dtype, example, "test_kernel_table.py::test_masks_hold_dtypes",
       "has a dtype_mask without any dtype")
CHANGE(kernel_takes_no_dtype, copy_kernels(), changed_kernel.dtype_mask = mask_without_dtypes)
CAUGHT(kernels_are_only_counted, example, "test_kernel_table.py::test_a_list_with_entries_is_there",
       "num_kernels is not 0, but kernels is NULL")
CHANGE(kernels_are_only_counted, made.kernels.kernels = NULL)

static const tb_kernel* finds_the_first(const char* op) {
  return kernel_list[0];
}

CAUGHT(any_kernel_is_found, example, "test_kernel_table.py::test_a_kernel_is_found_under_its_own_name",
       "gave a kernel for b'aten::add.out'")
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

CAUGHT(kernel_ignores_strides, example,
       "test_kernel_table.py::test_pointwise_kernels_compute[aten::add.out-transposed]", "aten::add.out: element 1 is")
CHANGE(kernel_ignores_strides, copy_kernels(), good_kernel = changed_kernel.function,
       changed_kernel.function = ignores_strides)

#include "faulty_captures.h"
#include "faulty_modules.h"
#include "faulty_order.h"
#include "faulty_threads.h"

/* ---- graphs, traces, collectives ---- */

static tb_stream* captured_instead;

CAUGHT(capture_does_not_stop_work, async, "test_graph_table.py::test_recorded_work_runs_when_it_is_launched[GLOBAL]",
       "after a copy was recorded")
FAULT(capture_does_not_stop_work, capture_begin) {
  const tb_status status = good.core.stream_create(device, 0, &captured_instead);
  return status ? status : good.graph.capture_begin(device, captured_instead, mode);
}

ANSWERS(capture_does_not_stop_work, capture_end, good.graph.capture_end(device, captured_instead, out_graph))

CAUGHT(graph_runs_once, async, "test_graph_table.py::test_recorded_work_runs_when_it_is_launched[RELAXED]", "launch 2")
FAULT(graph_runs_once, graph_launch) {
  static int launches;
  return launches++ ? TB_STATUS_OK : GOOD(graph_launch);
}

CAUGHT(recording_streams_are_idle, async,
       "test_graph_table.py::test_a_capture_fails_with_what_it_forbids[stream_synchronize-GLOBAL]",
       "during a capture stream_synchronize returned OK, but must fail")
FAULT(recording_streams_are_idle, stream_synchronize) {
  finish(device, stream);
  return TB_STATUS_OK;
}

CAUGHT(streams_do_not_join, async, "test_graph_table.py::test_streams_that_wait_for_recorded_work_are_recorded",
       "a stream that waits for recorded work is not recorded")
ANSWERS(streams_do_not_join, stream_wait_event, TB_STATUS_OK)
CAUGHT(functions_run_when_recorded, async, "test_graph_table.py::test_host_functions_run_once_a_launch",
       "were called [1, 2, 3] before a launch")
FIRST(functions_run_when_recorded, stream_host_function, fn(arg))
CAUGHT(graphs_cannot_be_instantiated, async, "test_graph_table.py::test_all_slots_are_set",
       "these slots are unset: graph_instantiate")
CHANGE(graphs_cannot_be_instantiated, MADE(graph_instantiate) = NULL)
CAUGHT(streams_never_record, async, "test_graph_table.py::test_a_stream_tells_whether_it_records",
       "stream_is_capturing said 0 before, 0 during")
ANSWERS(streams_never_record, stream_is_capturing, (*out_is_capturing = 0, TB_STATUS_OK))
CAUGHT(everything_is_traced, xcpu, "test_profiler_table.py::test_only_what_was_asked_for_is_traced",
       "only fills were to be traced")
FIRST(everything_is_traced, trace_start, kinds = ~0ull)
CAUGHT(traces_do_not_stop, xcpu, "test_profiler_table.py::test_required_slots_are_set",
       "these slots are unset: trace_stop")
CHANGE(traces_do_not_stop, MADE(trace_stop) = NULL)

static int is_range_open;

CAUGHT(ranges_do_not_nest, xcpu, "test_profiler_table.py::test_ranges_nest", "a range is open")
FAULT(ranges_do_not_nest, range_push) {
  if (is_range_open) return host->fail(TB_STATUS_INTERNAL, "a range is open");
  is_range_open = 1;
  return TB_STATUS_OK;
}

ANSWERS(ranges_do_not_nest, range_pop, (is_range_open = 0, TB_STATUS_OK))
CAUGHT(correlation_is_lost, xcpu, "test_profiler_table.py::test_a_copy_is_traced", "4711 has correlation 0")
ANSWERS(correlation_is_lost, correlation_push, good.prof.correlation_push(0))

CAUGHT(records_are_kept, xcpu, "test_profiler_table.py::test_records_are_handed_out_once",
       "records were handed out twice")
FAULT(records_are_kept, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) callback(arg, &records[i]);
  return TB_STATUS_OK;
}

static uint64_t last_pushed; /* of any thread */

CAUGHT(correlations_are_shared, xcpu, "test_profiler_table.py::test_a_copy_is_traced",
       "a copy under correlation 4711 has correlation 4712")
FIRST(correlations_are_shared, correlation_push, last_pushed = id)

FAULT(correlations_are_shared, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) records[i].correlation = last_pushed;
  return GOOD(trace_collect);
}

/* In ticks since the device was started. */
CAUGHT(records_have_another_clock, xcpu, "test_profiler_table.py::test_a_copy_is_traced", "and clock_pair said")
FAULT(records_have_another_clock, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) records[i].start_ns %= 1000, records[i].end_ns %= 1000, records[i].end_ns += 1000;
  return GOOD(trace_collect);
}

CAUGHT(records_name_the_default_stream, async, "test_profiler_table.py::test_a_copy_is_traced", "names 0x0")
FAULT(records_name_the_default_stream, trace_collect) {
  int i;
  for (i = 0; i < num_records; ++i) records[i].stream = 0;
  return GOOD(trace_collect);
}

CAUGHT(host_clock_has_the_wrong_unit, xcpu, "test_profiler_table.py::test_clocks_can_be_compared",
       "whose CLOCK_MONOTONIC was")
THEN(host_clock_has_the_wrong_unit, clock_pair, *out_host_ns /= 1000)
CAUGHT(the_last_element_is_not_received, xcpu, "test_ccl_table.py::test_what_is_sent_is_received",
       "1 of 1001 bytes are wrong, bytes 1000..1000")
ANSWERS(the_last_element_is_not_received, recv, good.ccl.recv(buffer, count - 1, dtype, peer, comm, stream))

CAUGHT(sums_differ_between_ranks, xcpu, "test_ccl_table.py::test_sums_are_the_same_on_all_ranks",
       "rank 0: the sum of 1001 numbers")
FAULT(sums_differ_between_ranks, all_reduce) {
  const tb_status status = GOOD(all_reduce);
  if (comm->rank == 0)
    original.memory_copy(comm->device, out, comm->device, in, bytes_of(count, dtype), TB_COPY_DEVICE_TO_DEVICE, stream);
  return status;
}

CAUGHT(ids_are_equal, ccl, "test_ccl_table.py::test_unique_ids_differ", "unique_id_create gave")
THEN(ids_are_equal, unique_id_create, memset(out_unique_id, 7, good.ccl.unique_id_bytes))
CAUGHT(ids_have_no_bytes, xcpu, "test_ccl_table.py::test_required_slots_are_set", "unique_id_bytes is 0")
CHANGE(ids_have_no_bytes, made.ccl.unique_id_bytes = 0)

/* ---- collectives of the good library itself, if it has them ---- */

CAUGHT(empty_messages_fail, ccl, "test_ccl_table.py::test_empty_messages_keep_their_place",
       "send and recv of 0 elements returned INVALID_ARGUMENT, INVALID_ARGUMENT")
ANSWERS(empty_messages_fail, send, count ? GOOD(send) : TB_STATUS_INVALID_ARGUMENT)
ANSWERS(empty_messages_fail, recv, count ? GOOD(recv) : TB_STATUS_INVALID_ARGUMENT)

static __thread int in_group;

CAUGHT(groups_are_forgotten, ccl, "test_ccl_table.py::test_messages_cross_in_a_group",
       "what rank 0 received in the group: 4980")
ANSWERS(groups_are_forgotten, group_begin, (in_group = 1, TB_STATUS_OK))
ANSWERS(groups_are_forgotten, group_end, (in_group = 0, TB_STATUS_OK))
ANSWERS(groups_are_forgotten, send, in_group ? TB_STATUS_OK : GOOD(send))
ANSWERS(groups_are_forgotten, recv, in_group ? TB_STATUS_OK : GOOD(recv))

static int made_an_id;

CAUGHT(other_processes_hear_nothing, ccl, "test_ccl_table.py::test_ranks_of_two_processes_exchange",
       "what rank 0 sent, at rank 1: 29")
FIRST(other_processes_hear_nothing, unique_id_create, made_an_id = 1)
ANSWERS(other_processes_hear_nothing, recv, made_an_id ? GOOD(recv) : TB_STATUS_OK)
CAUGHT(aborts_are_ignored, ccl, "test_ccl_failures.py::test_an_abort_ends_pending_calls",
       "the recv has not ended 5 s after comm_abort")
ANSWERS(aborts_are_ignored, comm_abort, TB_STATUS_OK)
CAUGHT(communicators_are_always_well, ccl, "test_ccl_failures.py::test_errors_are_reported_when_asked_for",
       "comm_query_error after comm_abort returned OK, OK")
ANSWERS(communicators_are_always_well, comm_query_error, TB_STATUS_OK)
CAUGHT(aborted_calls_succeed, ccl, "test_ccl_failures.py::test_an_abort_ends_pending_calls",
       "the recv that was aborted reports no failure")
THEN(aborted_calls_succeed, recv, status = TB_STATUS_OK)
CAUGHT(products_are_sums, ccl, "test_ccl_collectives.py::test_all_reduce_computes[int64-PRODUCT]",
       "PRODUCT of int64: 750 of 8000 bytes are wrong")
FIRST(products_are_sums, all_reduce, if (reduction == TB_REDUCE_PRODUCT) reduction = TB_REDUCE_SUM)
CAUGHT(halves_are_shorts, ccl, "test_ccl_collectives.py::test_all_reduce_computes[float16-SUM]", "SUM of float16: ")
FIRST(halves_are_shorts, all_reduce, if (dtype.code == TB_DTYPE_FLOAT && dtype.bits == 16) dtype.code = TB_DTYPE_INT)
CAUGHT(sums_have_whole_blocks, ccl, "test_ccl_collectives.py::test_all_reduce_computes[float64-SUM]",
       "SUM of float64: the bytes behind it: ")
FIRST(sums_have_whole_blocks, all_reduce, count = (count + 15) / 16 * 16)
CAUGHT(results_are_cleared_first, ccl, "test_ccl_collectives.py::test_all_reduce_in_place_of_many",
       "the sum of 700001 numbers, in place")
FIRST(results_are_cleared_first, all_reduce, memset(out, 0, bytes_of(count, dtype)))
CAUGHT(all_ranks_are_the_root, ccl, "test_ccl_collectives.py::test_reduce_gives_the_root_the_result[0-apart]",
       "out of rank 1, which is not the root")
ANSWERS(all_ranks_are_the_root, reduce, GOOD(all_reduce))
CAUGHT(broadcasts_need_two_buffers, ccl,
       "test_ccl_collectives.py::test_broadcast_gives_all_what_the_root_has[0-in-place]", "broadcast returned")
FIRST(broadcasts_need_two_buffers, broadcast,
      if (in == out) return host->fail(TB_STATUS_INVALID_ARGUMENT, "in and out are one"))
CAUGHT(reductions_clear_their_output, ccl, "test_ccl_collectives.py::test_reduce_gives_the_root_the_result[0-in-place]",
       "the sum at the root, rank 0")
FIRST(reductions_clear_their_output, reduce, memset(out, 0, bytes_of(count, dtype)))
CAUGHT(rank_0_is_the_root, ccl, "test_ccl_collectives.py::test_broadcast_gives_all_what_the_root_has[1-apart]",
       "rank 0: what rank 1 broadcast")
FIRST(rank_0_is_the_root, broadcast, root = 0)

CAUGHT(parts_are_backwards, ccl, "test_ccl_collectives.py::test_all_gather_puts_parts_in_order",
       "rank 0: the parts of all ranks")
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

CAUGHT(all_get_the_first_part, ccl, "test_ccl_collectives.py::test_reduce_scatter_gives_each_rank_its_part",
       "rank 1: its part of the sum")
ANSWERS(all_get_the_first_part, reduce_scatter, GOOD(all_reduce))

CAUGHT(parts_are_packed, ccl, "test_ccl_collectives.py::test_all_to_all_takes_counts_and_offsets",
       "rank 0: what all sent it")
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
