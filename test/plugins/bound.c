/* A device whose driver has a current device per thread, as many have: LIBRARY, which is xcpu, where every slot that works on
 * a device fails unless thread_bind has made that one the calling thread's. With the tables of tables.h. Who forgets to
 * bind once cannot use it, nor who copies or fills what overlaps, or copies device memory as the host's. */
#include "wrapper.h"

#include "tables.h"

static __thread int32_t bound = -1;
static tb_core_table lenient;

FUNCTION(bind, thread_bind) {
  bound = device;
  return TB_STATUS_OK;
}

static tb_status check(int32_t device, const char* slot) {
  if (device < 0 || device == bound) return TB_STATUS_OK;
  return host->fail(TB_STATUS_INVALID_ARGUMENT, "%s on device %d was called by a thread of device %d", slot,
                    (int)device, (int)bound);
}

/* Rows that are `pitch` apart; of 1 row the pitch plays no part. */
static int meet(const void* a, uint64_t a_pitch, const void* b, uint64_t b_pitch, uint64_t width, uint64_t height) {
  uint64_t i = 0, j = 0;
  while (i < height && j < height) {
    const uintptr_t row = (uintptr_t)a + i * a_pitch, other = (uintptr_t)b + j * b_pitch;
    if (row < other + width && other < row + width) return 1;
    row < other ? ++i : ++j;
  }
  return 0;
}

static tb_status refuse(const char* slot) {
  return host->fail(TB_STATUS_INVALID_ARGUMENT, "%s was given ranges that overlap", slot);
}

/* Whether the copy takes device memory for the host's. */
static int mistakes(const void* dst, const void* src, uint32_t kind) {
  const void* side = kind == TB_COPY_HOST_TO_DEVICE ? src : kind == TB_COPY_DEVICE_TO_HOST ? dst : NULL;
  tb_pointer_info info = {sizeof info};
  return side && lenient.memory_query(side, &info) == TB_STATUS_OK && info.kind == TB_MEMORY_DEVICE;
}

FUNCTION(copy_apart, memory_copy) {
  if (mistakes(dst, src, kind))
    return host->fail(TB_STATUS_INVALID_ARGUMENT, "memory_copy was given device memory as the host's");
  return meet(dst, 0, src, 0, size_bytes, 1) ? refuse("memory_copy")
                                             : lenient.memory_copy ARGUMENTS_OF(TB_SLOT_memory_copy);
}

FUNCTION(rows_apart, memory_copy_2d) {
  return meet(dst, dst_pitch_bytes, src, src_pitch_bytes, width_bytes, height)
             ? refuse("memory_copy_2d")
             : lenient.memory_copy_2d ARGUMENTS_OF(TB_SLOT_memory_copy_2d);
}

FUNCTION(fill_apart, memory_fill) {
  return (uintptr_t)pattern < (uintptr_t)dst + size_bytes && (uintptr_t)dst < (uintptr_t)pattern + pattern_bytes
             ? refuse("memory_fill")
             : lenient.memory_fill ARGUMENTS_OF(TB_SLOT_memory_fill);
}

#define CHECKED(slot)                                                 \
  FUNCTION(slot##_bound, slot) {                                      \
    const tb_status status = check(DEVICE_OF(TB_SLOT_##slot), #slot); \
    return status != TB_STATUS_OK ? status : GOOD(slot);              \
  }
ALL_SLOTS(CHECKED)

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  host = the_host;
  if (!wrap(LIBRARY, the_host)) return NULL;
  lenient = good.core;
  GOOD_SLOT(memory_copy) = copy_apart;
  if (GOOD_SLOT(memory_copy_2d)) GOOD_SLOT(memory_copy_2d) = rows_apart;
  if (GOOD_SLOT(memory_fill)) GOOD_SLOT(memory_fill) = fill_apart;
  good.ccl.struct_size = 0; /* of its own communicators nothing here says which device is theirs */
  add_tables();
#define BIND(slot) \
  if (MADE(slot)) MADE(slot) = slot##_bound;
  ALL_SLOTS(BIND)
  MADE(thread_bind) = bind;
  return &plugin;
}
