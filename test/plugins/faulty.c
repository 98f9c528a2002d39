/* A device with one fault on demand, made of a device without: the library in TORCH_BACKEND_FAULTY_OVER is opened, and
 * the fault that TORCH_BACKEND_FAULTY names replaces some of its functions. Unset: no fault. The device has the good
 * one's name and options. For the tests of the conformance kit, which has to find every one of these faults.
 *
 * The faults are those that drivers have: each function below is one, and the table at the end lists them. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "torch_backend/device.h"

#include "tables.h"

static const tb_plugin* good_plugin;
static tb_core_table good; /* the functions of the good device */
static const tb_host* host;
static tb_plugin plugin; /* what we hand out: the good one, changed */

static void pause_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static char* at(void* ptr, uint64_t offset) {
  return (char*)ptr + offset;
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

static tb_status copy_rows(int32_t device, void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch,
                           uint64_t width, uint64_t height, uint32_t kind, tb_stream* stream) {
  const int32_t dst_device = kind == TB_COPY_DEVICE_TO_HOST ? -1 : device;
  const int32_t src_device = kind == TB_COPY_HOST_TO_DEVICE ? -1 : device;
  tb_status status = TB_STATUS_OK;
  uint64_t row;
  for (row = 0; row < height && status == TB_STATUS_OK; ++row)
    status = good.memory_copy(dst_device, at(dst, row * dst_pitch), src_device, (const char*)src + row * src_pitch,
                              width, kind, stream);
  return status;
}

static tb_status register_nothing(void* ptr, uint64_t size) {
  (void)ptr, (void)size;
  return TB_STATUS_OK;
}

static tb_status unregister_nothing(void* ptr) {
  (void)ptr;
  return TB_STATUS_OK;
}

/* ---- copies ---- */

static tb_status copy_drops_the_tail(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size,
                                     uint32_t kind, tb_stream* stream) {
  return good.memory_copy(dst_device, dst, src_device, src, size > 64 ? size & ~63ull : size, kind, stream);
}

static tb_status copy_rounds_the_size_up(int32_t dst_device, void* dst, int32_t src_device, const void* src,
                                         uint64_t size, uint32_t kind, tb_stream* stream) {
  if (kind == TB_COPY_DEVICE_TO_DEVICE) size = (size + 15) & ~15ull;
  return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

static tb_status copy_rounds_addresses(int32_t dst_device, void* dst, int32_t src_device, const void* src,
                                       uint64_t size, uint32_t kind, tb_stream* stream) {
  if (kind == TB_COPY_HOST_TO_DEVICE) dst = (void*)((uintptr_t)dst & ~(uintptr_t)3);
  return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

static tb_status copy_goes_the_wrong_way(int32_t dst_device, void* dst, int32_t src_device, const void* src,
                                         uint64_t size, uint32_t kind, tb_stream* stream) {
  if (kind == TB_COPY_DEVICE_TO_DEVICE && size % 2)
    return good.memory_copy(src_device, (void*)src, dst_device, dst, size, kind, stream);
  return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

static tb_status copy_between_devices_is_skipped(int32_t dst_device, void* dst, int32_t src_device, const void* src,
                                                 uint64_t size, uint32_t kind, tb_stream* stream) {
  if (kind == TB_COPY_PEER) return TB_STATUS_OK;
  return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

static tb_status copy_of_unknown_kind_moves(int32_t dst_device, void* dst, int32_t src_device, const void* src,
                                            uint64_t size, uint32_t kind, tb_stream* stream) {
  tb_status status;
  if (kind >= TB_COPY_HOST_TO_DEVICE && kind <= TB_COPY_PEER)
    return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
  status = good.memory_copy(dst_device, dst, -1, src, size, TB_COPY_HOST_TO_DEVICE, stream);
  return status ? status : host->fail(TB_STATUS_UNSUPPORTED, "no copy of kind %u", (unsigned)kind);
}

static tb_status copy_is_not_ready(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size,
                                   uint32_t kind, tb_stream* stream) {
  const tb_status status = good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
  return status ? status : TB_STATUS_NOT_READY;
}

static tb_status copy_crashes(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size,
                              uint32_t kind, tb_stream* stream) {
  if (kind == TB_COPY_DEVICE_TO_DEVICE) raise(SIGSEGV);
  return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

static tb_status small_copies_overtake(int32_t dst_device, void* dst, int32_t src_device, const void* src,
                                       uint64_t size, uint32_t kind, tb_stream* stream) {
  if (kind == TB_COPY_HOST_TO_DEVICE && size <= 64) {
    memcpy(dst, src, (size_t)size);
    return TB_STATUS_OK;
  }
  return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

static int num_enqueued;

static tb_status few_copies_fit(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size,
                                uint32_t kind, tb_stream* stream) {
  if (++num_enqueued > 500) return host->fail(TB_STATUS_INTERNAL, "the queue is full");
  return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

static tb_status synchronize_makes_room(int32_t device, tb_stream* stream) {
  num_enqueued = 0;
  return good.stream_synchronize(device, stream);
}

static int has_failed;

static tb_status copy_repeats_a_failure(int32_t dst_device, void* dst, int32_t src_device, const void* src,
                                        uint64_t size, uint32_t kind, tb_stream* stream) {
  if (has_failed) return has_failed = 0, host->fail(TB_STATUS_INTERNAL, "an earlier call failed");
  return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

static tb_status failure_is_kept(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out_ptr) {
  const tb_status status = good.memory_allocate(device, kind, size, stream, out_ptr);
  has_failed |= status == TB_STATUS_OUT_OF_MEMORY;
  return status;
}

static tb_status rows_without_pitch(int32_t device, void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch,
                                    uint64_t width, uint64_t height, uint32_t kind, tb_stream* stream) {
  (void)dst_pitch, (void)src_pitch;
  return copy_rows(device, dst, width, src, width, width, height, kind, stream);
}

/* ---- fills ---- */

static tb_status fill_misses_the_last_byte(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes,
                                           uint64_t size, tb_stream* stream) {
  if (pattern_bytes == 1 && size > 1) --size;
  return good.memory_fill(device, dst, pattern, pattern_bytes, size, stream);
}

static tb_status fill_halves_wide_patterns(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes,
                                           uint64_t size, tb_stream* stream) {
  return good.memory_fill(device, dst, pattern, pattern_bytes == 16 ? 8 : pattern_bytes, size, stream);
}

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

static tb_status fill_reads_the_pattern_late(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes,
                                             uint64_t size, tb_stream* stream) {
  late_fill* fill = malloc(sizeof *fill);
  *fill = (late_fill){dst, pattern, pattern_bytes, size};
  return good.stream_host_function(device, stream, run_late_fill, fill);
}

/* ---- memory ---- */

static tb_status free_leaks(int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream) {
  (void)device, (void)kind, (void)ptr, (void)size, (void)stream;
  return TB_STATUS_OK;
}

static void* shared_block;

static tb_status small_blocks_overlap(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out_ptr) {
  if (kind != TB_MEMORY_DEVICE || size > 16) return good.memory_allocate(device, kind, size, stream, out_ptr);
  if (!shared_block) good.memory_allocate(device, kind, 64, stream, &shared_block);
  *out_ptr = shared_block;
  return TB_STATUS_OK;
}

static tb_status small_blocks_are_kept(int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream) {
  return ptr == shared_block ? TB_STATUS_OK : good.memory_free(device, kind, ptr, size, stream);
}

#define SHIFT 16

static tb_status blocks_are_shifted(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out_ptr) {
  void* ptr;
  const tb_status status = good.memory_allocate(device, kind, size + SHIFT, stream, &ptr);
  if (status == TB_STATUS_OK) *out_ptr = at(ptr, SHIFT);
  return status;
}

static tb_status shifted_blocks_are_freed(int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream) {
  return good.memory_free(device, kind, (char*)ptr - SHIFT, size + SHIFT, stream);
}

static tb_status threads_get_the_same_block(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream,
                                            void** out_ptr) {
  static void* block;
  const uint64_t largest = 1 << 17; /* so that only contents get mixed up */
  const tb_status status = good.memory_allocate(device, kind, size < largest ? largest : size, stream, &block);
  pause_ms(1);
  if (status == TB_STATUS_OK) *out_ptr = block;
  return status;
}

static tb_status unregister_fails(void* ptr) {
  return host->fail(TB_STATUS_INVALID_ARGUMENT, "%p is not registered", ptr);
}

static tb_status access_is_a_bit_mask(int32_t device, int32_t peer, int32_t* out_can_access) {
  (void)device;
  *out_can_access = 1 << peer;
  return TB_STATUS_OK;
}

static int ran_out;

static tb_status memory_stays_full(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out_ptr) {
  const tb_status status = ran_out ? host->fail(TB_STATUS_OUT_OF_MEMORY, "still full")
                                   : good.memory_allocate(device, kind, size, stream, out_ptr);
  ran_out |= status == TB_STATUS_OUT_OF_MEMORY;
  return status;
}

static tb_status full_memory_is_internal(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream,
                                         void** out_ptr) {
  const tb_status status = good.memory_allocate(device, kind, size, stream, out_ptr);
  return status == TB_STATUS_OUT_OF_MEMORY ? host->fail(TB_STATUS_INTERNAL, "driver error 2") : status;
}

static tb_status failures_write_pointers(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream,
                                         void** out_ptr) {
  *out_ptr = NULL;
  return good.memory_allocate(device, kind, size, stream, out_ptr);
}

static tb_status refused_memory_is_taken(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream,
                                         void** out_ptr) {
  void* lost;
  const tb_status status = good.memory_allocate(device, kind, size, stream, out_ptr);
  if (status == TB_STATUS_UNSUPPORTED) good.memory_allocate(device, TB_MEMORY_DEVICE, size, stream, &lost);
  return status;
}

static tb_status unknown_kinds_are_device_memory(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream,
                                                 void** out_ptr) {
  return good.memory_allocate(device, kind > TB_MEMORY_SHARED ? TB_MEMORY_DEVICE : kind, size, stream, out_ptr);
}

/* Device 1 gets the block that device 0 got last, if it has the right size. */
static void* block_of_device_0;
static uint64_t size_on_device_0;

static tb_status device_1_uses_device_0(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream,
                                        void** out_ptr) {
  tb_status status;
  if (device == 1 && kind == TB_MEMORY_DEVICE && block_of_device_0 && size == size_on_device_0) {
    *out_ptr = block_of_device_0;
    remember(block_of_device_0);
    return TB_STATUS_OK;
  }
  status = good.memory_allocate(device, kind, size, stream, out_ptr);
  if (status == TB_STATUS_OK && device == 0) {
    block_of_device_0 = *out_ptr;
    size_on_device_0 = size;
  }
  return status;
}

static tb_status device_1_frees_nothing(int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream) {
  if (device == 1 && forget(ptr)) return TB_STATUS_OK;
  if (ptr == block_of_device_0) block_of_device_0 = NULL;
  return good.memory_free(device, kind, ptr, size, stream);
}

static tb_status all_memory_is_free(int32_t device, uint64_t* out_free, uint64_t* out_total) {
  const tb_status status = good.memory_info(device, out_free, out_total);
  *out_free = *out_total;
  return status;
}

static tb_status more_is_free_than_there_is(int32_t device, uint64_t* out_free, uint64_t* out_total) {
  const tb_status status = good.memory_info(device, out_free, out_total);
  *out_free = *out_total + 4096;
  return status;
}

static tb_status only_bases_are_known(const void* ptr, tb_pointer_info* out_info) {
  const tb_status status = good.memory_query(ptr, out_info);
  if (status == TB_STATUS_OK && out_info->base != ptr) out_info->kind = TB_MEMORY_UNKNOWN;
  return status;
}

static tb_status query_overruns(const void* ptr, tb_pointer_info* out_info) {
  out_info->struct_size = sizeof *out_info;
  return good.memory_query(ptr, out_info);
}

static tb_status everything_is_ours(const void* ptr, tb_pointer_info* out_info) {
  const tb_status status = good.memory_query(ptr, out_info);
  if (status == TB_STATUS_OK && out_info->kind == TB_MEMORY_UNKNOWN) out_info->kind = TB_MEMORY_DEVICE;
  return status;
}

/* Mappings that do not nest: the first unmap ends them all. */
static int is_mapped, mapped_device;
static void* mapped_ptr;
static uint64_t mapped_size;

static tb_status maps_once(int32_t device, void* ptr, uint64_t size, uint32_t access) {
  (void)access;
  if (is_mapped) return TB_STATUS_OK;
  is_mapped = 1, mapped_device = device, mapped_ptr = ptr, mapped_size = size;
  return good.memory_map(device, ptr, size, TB_MAP_READ | TB_MAP_WRITE);
}

static tb_status unmaps_all(int32_t device, void* ptr, uint64_t size, uint32_t access) {
  (void)device, (void)ptr, (void)size, (void)access;
  if (!is_mapped) return TB_STATUS_OK;
  is_mapped = 0;
  return good.memory_unmap(mapped_device, mapped_ptr, mapped_size, TB_MAP_READ | TB_MAP_WRITE);
}

/* ---- memory that processes share ---- */

static tb_status imports_are_copies(int32_t device, const tb_ipc_handle* handle, void** out_ptr) {
  tb_pointer_info info = {.struct_size = sizeof info};
  void *theirs, *copy;
  tb_status status = good.ipc_import(device, handle, &theirs);
  if (status) return status;
  good.memory_query(theirs, &info);
  status = good.memory_allocate(device, TB_MEMORY_DEVICE, info.size_bytes, NULL, &copy);
  if (!status) status = good.memory_copy(device, copy, device, theirs, info.size_bytes, TB_COPY_DEVICE_TO_DEVICE, NULL);
  if (!status) status = finish(device, NULL);
  good.ipc_close(device, theirs);
  if (!status) *out_ptr = copy;
  return status;
}

static tb_status copies_are_freed(int32_t device, void* ptr) {
  tb_pointer_info info = {.struct_size = sizeof info};
  good.memory_query(ptr, &info);
  return good.memory_free(device, TB_MEMORY_DEVICE, ptr, info.size_bytes, NULL);
}

static tb_status imports_start_elsewhere(int32_t device, const tb_ipc_handle* handle, void** out_ptr) {
  const tb_status status = good.ipc_import(device, handle, out_ptr);
  if (!status) *out_ptr = at(*out_ptr, 64);
  return status;
}

static tb_status elsewhere_is_closed(int32_t device, void* ptr) {
  return good.ipc_close(device, (char*)ptr - 64);
}

static tb_status closing_wipes_memory(int32_t device, void* ptr) {
  const char zero = 0;
  tb_pointer_info info = {.struct_size = sizeof info};
  tb_status status;
  good.memory_query(ptr, &info);
  status = good.memory_fill(device, ptr, &zero, 1, info.size_bytes, NULL);
  if (!status) status = finish(device, NULL);
  return status ? status : good.ipc_close(device, ptr);
}

static tb_status nothing_is_closed(int32_t device, void* ptr) {
  (void)device, (void)ptr;
  return TB_STATUS_OK;
}

static tb_status gone_memory_is_imported(int32_t device, const tb_ipc_handle* handle, void** out_ptr) {
  const tb_status status = good.ipc_import(device, handle, out_ptr);
  return status ? good.memory_allocate(device, TB_MEMORY_DEVICE, 4096, NULL, out_ptr) : status;
}

static tb_status all_handles_are_the_first(int32_t device, void* ptr, tb_ipc_handle* out_handle) {
  static tb_ipc_handle first[64];
  static int has_first[64];
  const tb_status status = good.ipc_export(device, ptr, out_handle);
  if (status) return status;
  if (!has_first[device]) first[device] = *out_handle;
  has_first[device] = 1;
  *out_handle = first[device];
  return status;
}

/* ---- properties ---- */

static tb_status properties_change(int32_t device, tb_device_properties* out_properties) {
  static int32_t calls;
  const tb_status status = good.device_properties(device, out_properties);
  if (out_properties->struct_size == sizeof *out_properties) out_properties->multiprocessor_count += ++calls;
  return status;
}

static tb_status properties_overrun(int32_t device, tb_device_properties* out_properties) {
  out_properties->struct_size = sizeof *out_properties;
  return good.device_properties(device, out_properties);
}

/* For faults in single fields: the good answer, all of it, is changed and handed out. */
static tb_status changed_properties(int32_t device, tb_device_properties* out_properties,
                                    void (*change)(int32_t, tb_device_properties*)) {
  tb_device_properties properties;
  const uint64_t room = out_properties->struct_size;
  tb_status status;
  properties.struct_size = sizeof properties;
  status = good.device_properties(device, &properties);
  change(device, &properties);
  memcpy(out_properties, &properties, room < sizeof properties ? room : sizeof properties);
  return status;
}

#define CHANGED(name, statement)                                                \
  static void change_##name(int32_t device, tb_device_properties* p) {          \
    (void)device;                                                               \
    statement;                                                                  \
  }                                                                             \
  static tb_status name(int32_t device, tb_device_properties* out_properties) { \
    return changed_properties(device, out_properties, change_##name);           \
  }

CHANGED(alignment_is_odd, p->allocation_alignment_bytes = 96)
CHANGED(priorities_are_reversed, p->stream_priority_lowest = -3; p->stream_priority_highest = 2)
CHANGED(name_is_not_terminated, memset(p->name, 'x', sizeof p->name))
CHANGED(devices_differ, if (device == 1) p->capabilities &= ~TB_CAP_HOST_COHERENT)
CHANGED(unknown_capabilities, p->capabilities |= 1ull << 60)
CHANGED(no_memory_at_all, p->total_memory_bytes = 0)
CHANGED(uuids_are_equal, memset(p->uuid, 7, sizeof p->uuid))

static tb_status device_count_changes(int32_t* out_count) {
  static int calls;
  const tb_status status = good.device_count(out_count);
  if (++calls > 2) *out_count -= 1;
  return status;
}

/* ---- streams ---- */

static tb_status does_not_wait(int32_t device, tb_stream* stream) {
  (void)device, (void)stream;
  return TB_STATUS_OK;
}

static tb_status hangs(int32_t device, tb_stream* stream) {
  if (!stream) return good.stream_synchronize(device, stream);
  for (;;) pause_ms(1000);
}

static tb_status waits_for_the_default_stream(int32_t device) {
  return good.stream_synchronize(device, NULL);
}

static tb_status stream_query_waits(int32_t device, tb_stream* stream) {
  return good.stream_synchronize(device, stream);
}

static tb_status always_idle(int32_t device, tb_stream* stream) {
  (void)device, (void)stream;
  return TB_STATUS_OK;
}

static tb_status priorities_are_refused(int32_t device, int32_t priority, tb_stream** out_stream) {
  tb_device_properties properties;
  properties.struct_size = sizeof properties;
  good.device_properties(device, &properties);
  if (priority == properties.stream_priority_highest)
    return host->fail(TB_STATUS_INVALID_ARGUMENT, "no priority %d", (int)priority);
  return good.stream_create(device, priority, out_stream);
}

static tb_status one_stream_for_all(int32_t device, int32_t priority, tb_stream** out_stream) {
  static tb_stream* only[64];
  const tb_status status = only[device] ? TB_STATUS_OK : good.stream_create(device, priority, &only[device]);
  if (status == TB_STATUS_OK) *out_stream = only[device];
  return status;
}

static tb_status few_streams_exist(int32_t device, int32_t priority, tb_stream** out_stream) {
  static int count;
  if (++count > 16) return host->fail(TB_STATUS_INTERNAL, "there are 16 queues");
  return good.stream_create(device, priority, out_stream);
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

static tb_status copy_needs_its_stream(int32_t dst_device, void* dst, int32_t src_device, const void* src,
                                       uint64_t size, uint32_t kind, tb_stream* stream) {
  checked_copy* copy;
  if (!stream || kind != TB_COPY_HOST_TO_DEVICE)
    return good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
  copy = malloc(sizeof *copy);
  *copy = (checked_copy){dst, src, size, stream};
  remember(stream);
  return good.stream_host_function(dst_device, stream, run_checked_copy, copy);
}

static tb_status destroyed_stream_drops_work(int32_t device, tb_stream* stream) {
  forget(stream);
  return good.stream_destroy(device, stream);
}

/* ---- events ---- */

static tb_status event_completes_early(int32_t device, tb_event* event) {
  (void)device, (void)event;
  return TB_STATUS_OK;
}

static tb_status event_never_completes(int32_t device, tb_event* event) {
  (void)device, (void)event;
  return TB_STATUS_NOT_READY;
}

static tb_status not_ready_is_an_error(int32_t device, tb_event* event) {
  const tb_status status = good.event_query(device, event);
  return status == TB_STATUS_NOT_READY ? host->fail(TB_STATUS_INTERNAL, "driver error 600") : status;
}

static tb_status event_query_waits(int32_t device, tb_event* event) {
  return good.event_synchronize(device, event);
}

static tb_status wait_is_ignored(int32_t device, tb_stream* stream, tb_event* event) {
  (void)device, (void)stream, (void)event;
  return TB_STATUS_OK;
}

static tb_status wait_is_for_own_events(int32_t device, tb_stream* stream, tb_event* event) {
  const tb_status status = good.event_query(device, event); /* refused for an event of another device */
  return status == TB_STATUS_INVALID_ARGUMENT ? TB_STATUS_OK : good.stream_wait_event(device, stream, event);
}

static tb_status wait_blocks(int32_t device, tb_stream* stream, tb_event* event) {
  const tb_status status = good.event_synchronize(device, event);
  return status ? status : good.stream_wait_event(device, stream, event);
}

static tb_status only_the_first_record_counts(int32_t device, tb_event* event, tb_stream* stream) {
  return remember(event) ? good.event_record(device, event, stream) : TB_STATUS_OK;
}

static tb_status destroyed_event_is_forgotten(int32_t device, tb_event* event) {
  forget(event);
  return good.event_destroy(device, event);
}

static tb_status destroying_a_pending_event_crashes(int32_t device, tb_event* event) {
  if (good.event_query(device, event) == TB_STATUS_NOT_READY) abort();
  return good.event_destroy(device, event);
}

/* A stream that waits looks at the event until it is complete, or gone. */
typedef struct polled_event {
  int32_t device;
  tb_event* event;
} polled_event;

static void poll_event(void* arg) {
  polled_event* polled = arg;
  while (forget(polled->event)) {
    remember(polled->event);
    if (good.event_query(polled->device, polled->event) == TB_STATUS_OK) break;
    pause_ms(1);
  }
  free(polled);
}

static tb_status wait_needs_the_event(int32_t device, tb_stream* stream, tb_event* event) {
  polled_event* polled = malloc(sizeof *polled);
  *polled = (polled_event){device, event};
  remember(event);
  return good.stream_host_function(device, stream, poll_event, polled);
}

static tb_status destroying_an_event_ends_waits(int32_t device, tb_event* event) {
  forget(event);
  pause_ms(3);
  return good.event_destroy(device, event);
}

static tb_status events_leak(int32_t device, tb_event* event) {
  (void)device, (void)event;
  return TB_STATUS_OK;
}

static tb_status one_event_for_all(int32_t device, uint32_t flags, tb_event** out_event) {
  static tb_event* only[64];
  const tb_status status = only[device] ? TB_STATUS_OK : good.event_create(device, flags, &only[device]);
  if (status == TB_STATUS_OK) *out_event = only[device];
  return status;
}

static tb_status unknown_flags_are_taken(int32_t device, uint32_t flags, tb_event** out_event) {
  return good.event_create(device, flags & TB_EVENT_TIMING, out_event);
}

static tb_status elapsed_in_microseconds(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed) {
  const tb_status status = good.event_elapsed(device, start, end, out_elapsed);
  if (status == TB_STATUS_OK) *out_elapsed /= 1000;
  return status;
}

static tb_status elapsed_runs_backwards(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed) {
  return good.event_elapsed(device, end, start, out_elapsed);
}

static tb_status pending_events_have_times(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed) {
  const tb_status status = good.event_elapsed(device, start, end, out_elapsed);
  if (status != TB_STATUS_NOT_READY) return status;
  *out_elapsed = 0;
  return TB_STATUS_OK;
}

static tb_status unrecorded_events_have_times(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed) {
  const tb_status status = good.event_elapsed(device, start, end, out_elapsed);
  if (status != TB_STATUS_INVALID_ARGUMENT) return status;
  *out_elapsed = 0;
  return TB_STATUS_OK;
}

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

static tb_status function_runs_twice(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  host_call* call = malloc(sizeof *call);
  *call = (host_call){fn, arg};
  return good.stream_host_function(device, stream, call_twice, call);
}

static tb_status function_never_runs(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  (void)device, (void)stream, (void)fn, (void)arg;
  return TB_STATUS_OK;
}

static tb_status function_runs_at_once(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  (void)device, (void)stream;
  fn(arg);
  return TB_STATUS_OK;
}

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

static tb_status nobody_waits_for_the_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  host_call* call = malloc(sizeof *call);
  *call = (host_call){fn, arg};
  return good.stream_host_function(device, stream, start_thread, call);
}

/* ---- threads and processes ---- */

static int32_t current_device; /* one for all threads */

static tb_status binds_the_process(int32_t device) {
  current_device = device;
  pause_ms(1);
  return TB_STATUS_OK;
}

static tb_status allocates_on_the_current_device(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream,
                                                 void** out_ptr) {
  (void)device;
  return good.memory_allocate(current_device, kind, size, stream, out_ptr);
}

static __thread int32_t device_of_thread = -1; /* what memory_free needs, though nobody can set it */

static tb_status allocating_sets_the_device(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream,
                                            void** out_ptr) {
  device_of_thread = device;
  return good.memory_allocate(device, kind, size, stream, out_ptr);
}

static tb_status freeing_needs_the_device(int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream) {
  if (device_of_thread != device) return host->fail(TB_STATUS_INVALID_ARGUMENT, "the thread has no device");
  return good.memory_free(device, kind, ptr, size, stream);
}

static int driver_was_forked;

static void note_fork(void) {
  driver_was_forked = 1;
}

static tb_status counting_starts_the_driver(int32_t* out_count) {
  static int is_started;
  if (!is_started) pthread_atfork(NULL, NULL, note_fork);
  is_started = 1;
  return good.device_count(out_count);
}

static tb_status forked_driver_aborts(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out_ptr) {
  if (driver_was_forked) abort();
  return good.memory_allocate(device, kind, size, stream, out_ptr);
}

static void wait_at_exit(void) {
  good.stream_synchronize(0, NULL);
}

static tb_status exit_waits_for_the_device(void) {
  atexit(wait_at_exit);
  return good.initialize ? good.initialize() : TB_STATUS_OK;
}

/* ---- what is not a slot: the host's services as the good device sees them, the entry, the other tables ---- */

static tb_host given_host;

static tb_status says_nothing(tb_status code, const char* format, ...) {
  (void)format;
  return code;
}

static void texts_are_lost(void) {
  given_host.fail = says_nothing;
}

static char last_text[512]; /* of any thread */

static tb_status says_the_last_text(tb_status code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(last_text, sizeof last_text, format, args);
  va_end(args);
  pause_ms(1);
  return host->fail(code, "%s", last_text);
}

static void texts_are_shared(void) {
  given_host.fail = says_the_last_text;
}

static unsigned char past_the_host[sizeof(tb_host) + 64];

static void host_is_read_past_its_end(void) {
  memcpy(past_the_host, host, sizeof past_the_host);
}

static int refuses;

static void newer_hosts_are_refused(void) {
  refuses = host->abi_minor > TB_ABI_MINOR;
  if (refuses) host->fail(TB_STATUS_INTERNAL, "made for version 1.%u only", (unsigned)TB_ABI_MINOR);
}

static const void* all_tables(const char* name) {
  const void* table = added_table(name);
  return table || !good_plugin->table ? table : good_plugin->table(name);
}

static const void* no_table(const char* name) {
  (void)name;
  return NULL;
}

static void other_majors_crash_it(void) {
  if (host->abi_major != TB_ABI_MAJOR) abort();
}

static void other_majors_get_no_reason(void) {
  refuses = host->abi_major != TB_ABI_MAJOR;
}

static void vendor_is_missing(void) {
  plugin.vendor = NULL;
}

static void plugin_is_too_long(void) {
  plugin.struct_size += 8;
}

static void option_keys_have_the_name(void) {
  static char key[64];
  static const char* keys[] = {key, NULL};
  snprintf(key, sizeof key, "%s.devices", plugin.name);
  plugin.option_keys = keys;
}

static const void* tables_move(const char* name) {
  tb_profiler_table* copy;
  if (strcmp(name, "prof.1") != 0) return all_tables(name);
  copy = malloc(sizeof *copy);
  *copy = profiler_table;
  return copy;
}

static const void* any_table(const char* name) {
  (void)name;
  return &good;
}

/* ---- kernels ---- */

#define MAX_KERNELS 64
static tb_kernel_table kernel_table;
static const tb_kernel* kernel_list[MAX_KERNELS];
static tb_kernel changed_kernel;

static const void* table_with_changed_kernels(const char* name) {
  return strcmp(name, "kernels.1") == 0 ? &kernel_table : all_tables(name);
}

/* The good list, of which the first entry is a copy that can be changed. */
static void copy_kernels(void) {
  kernel_table = *(const tb_kernel_table*)good_plugin->table("kernels.1");
  memcpy(kernel_list, kernel_table.kernels, kernel_table.num_kernels * sizeof *kernel_list);
  changed_kernel = *kernel_list[0];
  kernel_list[0] = &changed_kernel;
  kernel_table.kernels = kernel_list;
}

static void kernel_is_listed_twice(void) {
  copy_kernels();
  changed_kernel.op = kernel_list[1]->op;
}

static void kernel_has_no_function(void) {
  copy_kernels();
  changed_kernel.function = NULL;
}

static void kernel_name_has_no_namespace(void) {
  copy_kernels();
  changed_kernel.op = "add.out";
}

static const tb_kernel* finds_the_first(const char* op) {
  (void)op;
  return kernel_list[0];
}

static void any_kernel_is_found(void) {
  copy_kernels();
  kernel_table.kernel_find = finds_the_first;
}

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

static void kernel_ignores_strides(void) {
  copy_kernels();
  good_kernel = changed_kernel.function;
  changed_kernel.function = ignores_strides;
}

/* ---- graphs, traces, collectives ---- */

static tb_status recorded_work_runs(int32_t device, tb_stream* stream, uint32_t mode) {
  (void)device, (void)stream, (void)mode;
  captured = calloc(1, sizeof *captured);
  capturing_stream = (tb_stream*)&captured; /* of no copy */
  return TB_STATUS_OK;
}

static void capture_does_not_stop_work(void) {
  graph_table.capture_begin = recorded_work_runs;
}

static tb_status launches_once(int32_t device, tb_graph* graph, tb_stream* stream) {
  const tb_status status = graph_launch(device, graph, stream);
  graph->count = 0;
  return status;
}

static void graph_runs_once(void) {
  graph_table.graph_launch = launches_once;
}

static tb_status forgets_the_correlation(uint64_t id) {
  return correlation_push(id * 0);
}

static void correlation_is_lost(void) {
  profiler_table.correlation_push = forgets_the_correlation;
}

static tb_status collects_and_keeps(tb_trace_callback callback, void* arg) {
  int i;
  for (i = 0; i < num_records; ++i) callback(arg, &records[i]);
  return TB_STATUS_OK;
}

static void records_are_kept(void) {
  profiler_table.trace_collect = collects_and_keeps;
}

static tb_status clock_in_microseconds(int32_t device, int64_t* out_device_ns, int64_t* out_host_ns) {
  const tb_status status = clock_pair(device, out_device_ns, out_host_ns);
  *out_host_ns /= 1000;
  return status;
}

static void host_clock_has_the_wrong_unit(void) {
  profiler_table.clock_pair = clock_in_microseconds;
}

static tb_status receives_one_less(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
                                   tb_stream* stream) {
  return recv_message(buffer, count - 1, dtype, peer, comm, stream);
}

static void the_last_element_is_not_received(void) {
  ccl_table.recv = receives_one_less;
}

static tb_status first_rank_keeps_its_own(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                                          tb_comm* comm, tb_stream* stream) {
  const tb_status status = all_reduce(in, out, count, dtype, reduction, comm, stream);
  if (comm->rank == 0)
    original.memory_copy(comm->device, out, comm->device, in, bytes_of(count, dtype), TB_COPY_DEVICE_TO_DEVICE, stream);
  return status;
}

static void sums_differ_between_ranks(void) {
  ccl_table.all_reduce = first_rank_keeps_its_own;
}

static void ids_have_no_bytes(void) {
  ccl_table.unique_id_bytes = 0;
}

/* ---- collectives of the good library itself, if it has them ---- */

static tb_ccl_table good_ccl;

static tb_status sends_something(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
                                 tb_stream* stream) {
  return count ? good_ccl.send(buffer, count, dtype, peer, comm, stream) : TB_STATUS_INVALID_ARGUMENT;
}

static tb_status receives_something(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
                                    tb_stream* stream) {
  return count ? good_ccl.recv(buffer, count, dtype, peer, comm, stream) : TB_STATUS_INVALID_ARGUMENT;
}

static void empty_messages_fail(void) {
  ccl_table.send = sends_something;
  ccl_table.recv = receives_something;
}

static __thread int in_group;

static tb_status group_opens(void) {
  in_group = 1;
  return TB_STATUS_OK;
}

static tb_status group_closes(void) {
  in_group = 0;
  return TB_STATUS_OK;
}

static tb_status sends_alone(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
                             tb_stream* stream) {
  return in_group ? TB_STATUS_OK : good_ccl.send(buffer, count, dtype, peer, comm, stream);
}

static tb_status receives_alone(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
                                tb_stream* stream) {
  return in_group ? TB_STATUS_OK : good_ccl.recv(buffer, count, dtype, peer, comm, stream);
}

static void groups_are_forgotten(void) {
  ccl_table.group_begin = group_opens;
  ccl_table.group_end = group_closes;
  ccl_table.send = sends_alone;
  ccl_table.recv = receives_alone;
}

static int made_an_id;

static tb_status makes_an_id(void* out_unique_id) {
  made_an_id = 1;
  return good_ccl.unique_id_create(out_unique_id);
}

static tb_status receives_where_the_id_was_made(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer,
                                                tb_comm* comm, tb_stream* stream) {
  return made_an_id ? good_ccl.recv(buffer, count, dtype, peer, comm, stream) : TB_STATUS_OK;
}

static void other_processes_hear_nothing(void) {
  ccl_table.unique_id_create = makes_an_id;
  ccl_table.recv = receives_where_the_id_was_made;
}

static tb_status does_nothing(tb_comm* comm) {
  (void)comm;
  return TB_STATUS_OK;
}

static void aborts_are_ignored(void) {
  ccl_table.comm_abort = does_nothing;
}

static tb_status receives_anyway(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
                                 tb_stream* stream) {
  good_ccl.recv(buffer, count, dtype, peer, comm, stream);
  return TB_STATUS_OK;
}

static void aborted_calls_succeed(void) {
  ccl_table.recv = receives_anyway;
}

static void communicators_are_always_well(void) {
  ccl_table.comm_query_error = does_nothing;
}

static tb_status adds_up_products(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                                  tb_comm* comm, tb_stream* stream) {
  return good_ccl.all_reduce(in, out, count, dtype, reduction == TB_REDUCE_PRODUCT ? TB_REDUCE_SUM : reduction, comm,
                             stream);
}

static void products_are_sums(void) {
  ccl_table.all_reduce = adds_up_products;
}

static tb_status takes_halves_for_shorts(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                                         tb_comm* comm, tb_stream* stream) {
  if (dtype.code == TB_DTYPE_FLOAT && dtype.bits == 16) dtype.code = TB_DTYPE_INT;
  return good_ccl.all_reduce(in, out, count, dtype, reduction, comm, stream);
}

static void halves_are_shorts(void) {
  ccl_table.all_reduce = takes_halves_for_shorts;
}

static tb_status reduces_whole_blocks(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                                      tb_comm* comm, tb_stream* stream) {
  return good_ccl.all_reduce(in, out, (count + 15) / 16 * 16, dtype, reduction, comm, stream);
}

static void sums_have_whole_blocks(void) {
  ccl_table.all_reduce = reduces_whole_blocks;
}

static tb_status clears_first(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                              tb_comm* comm, tb_stream* stream) {
  memset(out, 0, bytes_of(count, dtype));
  return good_ccl.all_reduce(in, out, count, dtype, reduction, comm, stream);
}

static void results_are_cleared_first(void) {
  ccl_table.all_reduce = clears_first;
}

static tb_status reduces_for_all(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                                 int32_t root, tb_comm* comm, tb_stream* stream) {
  (void)root;
  return good_ccl.all_reduce(in, out, count, dtype, reduction, comm, stream);
}

static void all_ranks_are_the_root(void) {
  ccl_table.reduce = reduces_for_all;
}

static tb_status broadcasts_from_0(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root,
                                   tb_comm* comm, tb_stream* stream) {
  (void)root;
  return good_ccl.broadcast(in, out, count, dtype, 0, comm, stream);
}

static void rank_0_is_the_root(void) {
  ccl_table.broadcast = broadcasts_from_0;
}

static tb_status gathers_backwards(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm,
                                   tb_stream* stream) {
  const uint64_t size = bytes_of(count, dtype);
  char *first = out, *second = first + size, *kept = malloc(size);
  const tb_status status = good_ccl.all_gather(in, out, count, dtype, comm, stream);
  memcpy(kept, first, size);
  memcpy(first, second, size);
  memcpy(second, kept, size);
  free(kept);
  return status;
}

static void parts_are_backwards(void) {
  ccl_table.all_gather = gathers_backwards;
}

static tb_status scatters_nothing(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                                  tb_comm* comm, tb_stream* stream) {
  return good_ccl.all_reduce(in, out, count, dtype, reduction, comm, stream);
}

static void all_get_the_first_part(void) {
  ccl_table.reduce_scatter = scatters_nothing;
}

static tb_status packs_parts(const void* in, const uint64_t* send_counts, const uint64_t* send_offsets, void* out,
                             const uint64_t* recv_counts, const uint64_t* recv_offsets, tb_dtype dtype, tb_comm* comm,
                             tb_stream* stream) {
  const uint64_t offsets[2] = {0, recv_counts[0]};
  (void)recv_offsets;
  return good_ccl.all_to_all(in, send_counts, send_offsets, out, recv_counts, offsets, dtype, comm, stream);
}

static void parts_are_packed(void) {
  ccl_table.all_to_all = packs_parts;
}

/* In place of the mailboxes. */
static void take_good_collectives(void) {
  const tb_ccl_table* offered = good_plugin->table ? good_plugin->table("ccl.1") : NULL;
  if (!offered) return;
  memcpy(&good_ccl, offered, sizeof good_ccl < offered->struct_size ? sizeof good_ccl : offered->struct_size);
  ccl_table = good_ccl;
}

/* ---- the faults ---- */

typedef void (*any_function)(void);

typedef struct patch {
  size_t offset; /* in tb_core_table; 0 ends the list */
  any_function function;
} patch;

typedef struct fault {
  const char* name;
  patch patches[3];
  const void* (*table)(const char* name); /* replaces tb_plugin.table */
  void (*prepare)(void);                  /* called before the good library is entered */
  void (*change)(void);                   /* called after that */
  const char* description;
} fault;

/* The assignment is never made: it lets the compiler compare the types. */
#define PATCH(slot, with) {offsetof(tb_core_table, slot) + 0 * sizeof(good.slot = with), (any_function)with}
#define SLOT(slot, with) .patches = {PATCH(slot, with)}
#define TWO_SLOTS(slot, with, other, with_other) .patches = {PATCH(slot, with), PATCH(other, with_other)}
#define UNSET(slot) .patches = {{offsetof(tb_core_table, slot), NULL}}

static const fault faults[] = {
    {"copy_drops_the_tail", SLOT(memory_copy, copy_drops_the_tail),
     .description = "copies only whole blocks of 64 bytes"},
    {"copy_rounds_the_size_up", SLOT(memory_copy, copy_rounds_the_size_up),
     .description = "copies within the device in blocks of 16 bytes"},
    {"copy_rounds_addresses", SLOT(memory_copy, copy_rounds_addresses),
     .description = "writes to addresses that are multiples of 4"},
    {"copy_goes_the_wrong_way", SLOT(memory_copy, copy_goes_the_wrong_way),
     .description = "exchanges source and target of copies of odd sizes"},
    {"copy_between_devices_is_skipped", SLOT(memory_copy, copy_between_devices_is_skipped),
     .description = "declares TB_CAP_PEER and does nothing"},
    {"copy_of_unknown_kind_moves", SLOT(memory_copy, copy_of_unknown_kind_moves),
     .description = "says UNSUPPORTED after the copy"},
    {"copy_is_not_ready", SLOT(memory_copy, copy_is_not_ready),
     .description = "says NOT_READY of work that is enqueued"},
    {"copy_crashes", SLOT(memory_copy, copy_crashes), .description = "a segmentation fault within the device"},
    {"small_copies_overtake", SLOT(memory_copy, small_copies_overtake),
     .description = "small copies do not queue behind the work before them"},
    {"few_copies_fit", TWO_SLOTS(memory_copy, few_copies_fit, stream_synchronize, synchronize_makes_room),
     .description = "a queue that is full is an error"},
    {"failures_stay", TWO_SLOTS(memory_copy, copy_repeats_a_failure, memory_allocate, failure_is_kept),
     .description = "the next call reports the failure again"},
    {"rows_without_pitch", SLOT(memory_copy_2d, rows_without_pitch), .description = "takes rows for one piece"},
    {"fill_misses_the_last_byte", SLOT(memory_fill, fill_misses_the_last_byte), .description = "off by one"},
    {"fill_halves_wide_patterns", SLOT(memory_fill, fill_halves_wide_patterns),
     .description = "knows patterns of up to 8 bytes"},
    {"fill_reads_the_pattern_late", SLOT(memory_fill, fill_reads_the_pattern_late),
     .description = "reads the pattern when the fill runs"},
    {"free_leaks", SLOT(memory_free, free_leaks), .description = "never gives memory back"},
    {"small_blocks_overlap", TWO_SLOTS(memory_allocate, small_blocks_overlap, memory_free, small_blocks_are_kept),
     .description = "gives the same block to all small requests"},
    {"blocks_are_misaligned", TWO_SLOTS(memory_allocate, blocks_are_shifted, memory_free, shifted_blocks_are_freed),
     .description = "blocks start after a header of 16 bytes"},
    {"threads_get_the_same_block", TWO_SLOTS(memory_allocate, threads_get_the_same_block, memory_free, free_leaks),
     .description = "an allocator without a lock"},
    {"unregister_fails", SLOT(host_unregister, unregister_fails), .description = "does not find what it registered"},
    {"access_is_a_bit_mask", SLOT(peer_can_access, access_is_a_bit_mask), .description = "neither 0 nor 1"},
    {"imports_are_copies", TWO_SLOTS(ipc_import, imports_are_copies, ipc_close, copies_are_freed),
     .description = "another process gets a copy"},
    {"imports_start_elsewhere", TWO_SLOTS(ipc_import, imports_start_elsewhere, ipc_close, elsewhere_is_closed),
     .description = "another process does not get the base address"},
    {"closing_wipes_memory", SLOT(ipc_close, closing_wipes_memory),
     .description = "the exporter loses what another process closes"},
    {"nothing_is_closed", SLOT(ipc_close, nothing_is_closed), .description = "what was imported stays mapped"},
    {"gone_memory_is_imported", SLOT(ipc_import, gone_memory_is_imported),
     .description = "gives other memory for what is gone"},
    {"all_handles_are_the_first", SLOT(ipc_export, all_handles_are_the_first),
     .description = "one handle for every allocation"},
    {"memory_stays_full", SLOT(memory_allocate, memory_stays_full), .description = "never recovers from OUT_OF_MEMORY"},
    {"full_memory_is_internal", SLOT(memory_allocate, full_memory_is_internal),
     .description = "reports full memory as INTERNAL"},
    {"failures_write_pointers", SLOT(memory_allocate, failures_write_pointers),
     .description = "a failed allocation writes NULL"},
    {"refused_memory_is_taken", SLOT(memory_allocate, refused_memory_is_taken),
     .description = "an UNSUPPORTED allocation leaks"},
    {"unknown_kinds_are_device_memory", SLOT(memory_allocate, unknown_kinds_are_device_memory),
     .description = "takes any kind for device memory"},
    {"device_1_aliases_device_0",
     TWO_SLOTS(memory_allocate, device_1_uses_device_0, memory_free, device_1_frees_nothing),
     .description = "two devices share one memory"},
    {"all_memory_is_free", SLOT(memory_info, all_memory_is_free), .description = "memory_info never changes"},
    {"more_is_free_than_there_is", SLOT(memory_info, more_is_free_than_there_is), .description = "free > total"},
    {"only_bases_are_known", SLOT(memory_query, only_bases_are_known),
     .description = "does not know addresses in the midst of a block"},
    {"query_overruns", SLOT(memory_query, query_overruns), .description = "writes past the caller's struct"},
    {"everything_is_ours", SLOT(memory_query, everything_is_ours), .description = "takes host memory for its own"},
    {"mappings_do_not_nest", TWO_SLOTS(memory_map, maps_once, memory_unmap, unmaps_all),
     .description = "the first unmap ends all mappings"},
    {"properties_change", SLOT(device_properties, properties_change), .description = "another answer at each call"},
    {"properties_overrun", SLOT(device_properties, properties_overrun),
     .description = "writes past the caller's struct"},
    {"alignment_is_odd", SLOT(device_properties, alignment_is_odd), .description = "aligns to 96 bytes"},
    {"priorities_are_reversed", SLOT(device_properties, priorities_are_reversed),
     .description = "higher numbers are served first"},
    {"name_is_not_terminated", SLOT(device_properties, name_is_not_terminated), .description = "a name of 64 bytes"},
    {"devices_differ", SLOT(device_properties, devices_differ),
     .description = "only one device is coherent with the host"},
    {"unknown_capabilities", SLOT(device_properties, unknown_capabilities), .description = "sets bits without meaning"},
    {"no_memory_at_all", SLOT(device_properties, no_memory_at_all), .description = "forgets total_memory_bytes"},
    {"graphs_without_table", .table = no_table, .description = "declares TB_CAP_GRAPH and has no table graph.1"},
    {"uuids_are_equal", SLOT(device_properties, uuids_are_equal), .description = "one uuid for all devices"},
    {"device_count_changes", SLOT(device_count, device_count_changes), .description = "a device disappears"},
    {"timing_without_its_slot", UNSET(event_elapsed), .description = "declares TB_CAP_EVENT_TIMING only"},
    {"asynchronous_without_wait", UNSET(stream_wait_event), .description = "seven of the eight slots of streams"},
    {"synchronize_returns_early", SLOT(stream_synchronize, does_not_wait), .description = "does not wait"},
    {"synchronize_hangs", SLOT(stream_synchronize, hangs), .description = "never returns"},
    {"device_synchronize_forgets_streams", SLOT(device_synchronize, waits_for_the_default_stream),
     .description = "waits for the default stream only"},
    {"stream_query_waits", SLOT(stream_query, stream_query_waits), .description = "a query that blocks"},
    {"stream_is_always_idle", SLOT(stream_query, always_idle), .description = "a query that always says OK"},
    {"priorities_are_refused", SLOT(stream_create, priorities_are_refused),
     .description = "does not take its own highest priority"},
    {"few_streams_exist", SLOT(stream_create, few_streams_exist), .description = "16 streams"},
    {"destroyed_stream_drops_work",
     TWO_SLOTS(memory_copy, copy_needs_its_stream, stream_destroy, destroyed_stream_drops_work),
     .description = "work of a stream that was destroyed does not run"},
    {"one_stream_for_all", TWO_SLOTS(stream_create, one_stream_for_all, stream_destroy, does_not_wait),
     .description = "gives out one handle for every stream"},
    {"event_completes_early", SLOT(event_query, event_completes_early), .description = "always complete"},
    {"event_never_completes", SLOT(event_query, event_never_completes), .description = "never complete"},
    {"not_ready_is_an_error", SLOT(event_query, not_ready_is_an_error), .description = "INTERNAL for NOT_READY"},
    {"event_query_waits", SLOT(event_query, event_query_waits), .description = "a query that blocks"},
    {"event_synchronize_returns_early", SLOT(event_synchronize, event_completes_early), .description = "does not wait"},
    {"wait_is_ignored", SLOT(stream_wait_event, wait_is_ignored), .description = "streams do not wait"},
    {"wait_is_for_own_events", SLOT(stream_wait_event, wait_is_for_own_events),
     .description = "streams do not wait for events of another device"},
    {"wait_blocks", SLOT(stream_wait_event, wait_blocks), .description = "the host waits instead of the stream"},
    {"only_the_first_record_counts",
     TWO_SLOTS(event_record, only_the_first_record_counts, event_destroy, destroyed_event_is_forgotten),
     .description = "declares TB_CAP_EVENT_RERECORD and ignores a second record"},
    {"destroying_a_pending_event_crashes", SLOT(event_destroy, destroying_a_pending_event_crashes),
     .description = "aborts if the event is pending"},
    {"destroying_an_event_ends_waits",
     TWO_SLOTS(stream_wait_event, wait_needs_the_event, event_destroy, destroying_an_event_ends_waits),
     .description = "streams do not wait for an event that was destroyed"},
    {"events_leak", SLOT(event_destroy, events_leak), .description = "never gives events back"},
    {"one_event_for_all", TWO_SLOTS(event_create, one_event_for_all, event_destroy, events_leak),
     .description = "gives out one handle for every event"},
    {"unknown_flags_are_taken", SLOT(event_create, unknown_flags_are_taken), .description = "ignores unknown flags"},
    {"elapsed_in_microseconds", SLOT(event_elapsed, elapsed_in_microseconds), .description = "the wrong unit"},
    {"elapsed_runs_backwards", SLOT(event_elapsed, elapsed_runs_backwards), .description = "start minus end"},
    {"pending_events_have_times", SLOT(event_elapsed, pending_events_have_times), .description = "OK for NOT_READY"},
    {"unrecorded_events_have_times", SLOT(event_elapsed, unrecorded_events_have_times),
     .description = "OK for INVALID_ARGUMENT"},
    {"function_runs_twice", SLOT(stream_host_function, function_runs_twice), .description = "called twice"},
    {"function_never_runs", SLOT(stream_host_function, function_never_runs), .description = "never called"},
    {"function_runs_at_once", SLOT(stream_host_function, function_runs_at_once),
     .description = "does not queue behind the work before it"},
    {"nobody_waits_for_the_function", SLOT(stream_host_function, nobody_waits_for_the_function),
     .description = "the stream goes on before the function has run"},
    {"current_device_is_shared",
     TWO_SLOTS(thread_bind, binds_the_process, memory_allocate, allocates_on_the_current_device),
     .description = "threads share their current device"},
    {"threads_cannot_be_bound",
     TWO_SLOTS(memory_allocate, allocating_sets_the_device, memory_free, freeing_needs_the_device),
     .description = "memory_free needs the thread's device, and there is no thread_bind"},
    {"counting_starts_the_driver",
     TWO_SLOTS(device_count, counting_starts_the_driver, memory_allocate, forked_driver_aborts),
     .description = "a process cannot fork after device_count"},
    {"exit_waits_for_the_device", SLOT(initialize, exit_waits_for_the_device),
     .description = "a process ends when the device has"},
    {"texts_are_lost", .prepare = texts_are_lost, .description = "fails without host->fail"},
    {"texts_are_shared", .prepare = texts_are_shared, .description = "builds texts in a buffer that threads share"},
    {"host_is_read_past_its_end", .prepare = host_is_read_past_its_end, .description = "copies too much of tb_host"},
    {"newer_hosts_are_refused", .prepare = newer_hosts_are_refused, .description = "compares the minor version"},
    {"other_majors_crash_it", .prepare = other_majors_crash_it, .description = "aborts on another major version"},
    {"other_majors_get_no_reason", .prepare = other_majors_get_no_reason, .description = "refuses without host->fail"},
    {"vendor_is_missing", .change = vendor_is_missing, .description = "tb_plugin.vendor is NULL"},
    {"plugin_is_too_long", .change = plugin_is_too_long, .description = "a struct_size that is not its size"},
    {"option_keys_have_the_name", .change = option_keys_have_the_name, .description = "lists \"name.key\""},
    {"tables_move", .table = tables_move, .description = "a new table at each call"},
    {"any_table_is_offered", .table = any_table, .description = "does not look at the name of a table"},
    {"kernel_is_listed_twice", .table = table_with_changed_kernels, .change = kernel_is_listed_twice,
     .description = "two kernels for one operator"},
    {"kernel_has_no_function", .table = table_with_changed_kernels, .change = kernel_has_no_function,
     .description = "a kernel that is NULL"},
    {"kernel_name_has_no_namespace", .table = table_with_changed_kernels, .change = kernel_name_has_no_namespace,
     .description = "an operator without its namespace"},
    {"any_kernel_is_found", .table = table_with_changed_kernels, .change = any_kernel_is_found,
     .description = "kernel_find does not look at the name"},
    {"kernel_ignores_strides", .table = table_with_changed_kernels, .change = kernel_ignores_strides,
     .description = "takes every input for contiguous"},
    {"capture_does_not_stop_work", .change = capture_does_not_stop_work, .description = "runs what it should record"},
    {"graph_runs_once", .change = graph_runs_once, .description = "the second launch does nothing"},
    {"correlation_is_lost", .change = correlation_is_lost, .description = "records have no correlation"},
    {"records_are_kept", .change = records_are_kept, .description = "hands out records again and again"},
    {"host_clock_has_the_wrong_unit", .change = host_clock_has_the_wrong_unit, .description = "microseconds"},
    {"the_last_element_is_not_received", .change = the_last_element_is_not_received, .description = "off by one"},
    {"sums_differ_between_ranks", .change = sums_differ_between_ranks, .description = "one rank keeps its own"},
    {"ids_have_no_bytes", .change = ids_have_no_bytes, .description = "unique_id_bytes is 0"},
    {"empty_messages_fail", .change = empty_messages_fail, .description = "refuses a count of 0"},
    {"groups_are_forgotten", .change = groups_are_forgotten, .description = "never makes the calls of a group"},
    {"other_processes_hear_nothing", .change = other_processes_hear_nothing,
     .description = "receives only in the process that made the id"},
    {"aborts_are_ignored", .change = aborts_are_ignored, .description = "pending calls go on waiting"},
    {"aborted_calls_succeed", .change = aborted_calls_succeed, .description = "a recv never fails"},
    {"communicators_are_always_well", .change = communicators_are_always_well,
     .description = "comm_query_error knows of no failure"},
    {"products_are_sums", .change = products_are_sums, .description = "adds where it should multiply"},
    {"halves_are_shorts", .change = halves_are_shorts, .description = "looks at the size of a dtype only"},
    {"sums_have_whole_blocks", .change = sums_have_whole_blocks, .description = "writes past the result"},
    {"results_are_cleared_first", .change = results_are_cleared_first, .description = "fails in place"},
    {"all_ranks_are_the_root", .change = all_ranks_are_the_root, .description = "reduce writes on every rank"},
    {"rank_0_is_the_root", .change = rank_0_is_the_root, .description = "broadcast ignores its root"},
    {"parts_are_backwards", .change = parts_are_backwards, .description = "gathers in another order"},
    {"all_get_the_first_part", .change = all_get_the_first_part, .description = "reduce_scatter ignores the rank"},
    {"parts_are_packed", .change = parts_are_packed, .description = "all_to_all ignores its offsets"},
};
#define NUM_FAULTS (sizeof faults / sizeof faults[0])

static const fault* find_fault(const char* name) {
  size_t i;
  for (i = 0; i < NUM_FAULTS; ++i)
    if (strcmp(faults[i].name, name) == 0) return &faults[i];
  return NULL;
}

/* The reason is the list of all names, which is how the tests learn them. */
static const tb_plugin* refuse_fault(const char* name) {
  static char names[8192];
  size_t i;
  for (i = 0; i < NUM_FAULTS; ++i) {
    strcat(names, i ? " " : "");
    strcat(names, faults[i].name);
  }
  host->fail(TB_STATUS_INVALID_ARGUMENT, "there is no fault '%s'; there are: %s", name, names);
  return NULL;
}

static const tb_plugin* open_good_library(void) {
  const char* path = getenv("TORCH_BACKEND_FAULTY_OVER");
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  tb_plugin_entry_function entry;
  if (!library) {
    host->fail(TB_STATUS_INVALID_ARGUMENT, "TORCH_BACKEND_FAULTY_OVER must be the path of a device library: %s",
               path ? dlerror() : "it is not set");
    return NULL;
  }
  *(void**)&entry = dlsym(library, TB_PLUGIN_ENTRY_NAME);
  return entry(&given_host);
}

static void apply(const fault* f, tb_core_table* table) {
  const patch* p;
  for (p = f->patches; p->offset; ++p) memcpy(at(table, p->offset), &p->function, sizeof p->function);
  if (f->table) plugin.table = f->table;
  if (f->change) f->change();
}

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  static tb_core_table table;
  const char* name = getenv("TORCH_BACKEND_FAULTY");
  const fault* f = name && *name ? find_fault(name) : NULL;
  host = the_host;
  if (name && *name && !f) return refuse_fault(name);
  given_host = *the_host;
  if (f && f->prepare) f->prepare();
  if (refuses || !(good_plugin = open_good_library())) return NULL;
  memcpy(&good, good_plugin->core,
         sizeof good < good_plugin->core->struct_size ? sizeof good : good_plugin->core->struct_size);
  add_tables(&good);
  take_good_collectives();
  if (!good.memory_copy_2d) good.memory_copy_2d = copy_rows;
  if (!good.host_register) {
    good.host_register = register_nothing;
    good.host_unregister = unregister_nothing;
  }
  table = good;
  table.struct_size = sizeof table;
  plugin = *good_plugin;
  plugin.core = &table;
  plugin.table = all_tables;
  if (f) apply(f, &table);
  return &plugin;
}
