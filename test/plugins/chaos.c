/* A device whose calls fail at random, made of one without faults: LIBRARY is that one's path. Whoever opens the library
 * a second time finds the functions that set how often, and count: see the end.
 *
 * A call that fails has done nothing; only what gives back is done all the same, so that the device leaks nothing. A
 * device that is lost has finished what it was given, and is not called again. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "torch_backend/device.h"

#define MAX_DEVICES 64

/* X(slot, index of its device or -1, parameters, arguments, whether it gives something back) */
#define SLOTS(X)                                                                                                      \
  X(memory_allocate, device, (int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out),           \
    (device, kind, size, stream, out), 0)                                                                             \
  X(memory_free, device, (int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream),                \
    (device, kind, ptr, size, stream), 1)                                                                             \
  X(memory_copy, (kind == TB_COPY_DEVICE_TO_HOST || kind == TB_COPY_PEER ? src_device : dst_device),                  \
    (int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size, uint32_t kind,                \
     tb_stream* stream),                                                                                              \
    (dst_device, dst, src_device, src, size, kind, stream), 0)                                                        \
  X(stream_create, device, (int32_t device, int32_t priority, tb_stream** out), (device, priority, out), 0)           \
  X(stream_destroy, device, (int32_t device, tb_stream* stream), (device, stream), 1)                                 \
  X(stream_synchronize, device, (int32_t device, tb_stream* stream), (device, stream), 0)                             \
  X(stream_wait_event, device, (int32_t device, tb_stream* stream, tb_event* event), (device, stream, event), 0)      \
  X(event_create, device, (int32_t device, uint32_t flags, tb_event** out), (device, flags, out), 0)                  \
  X(event_destroy, device, (int32_t device, tb_event* event), (device, event), 1)                                     \
  X(event_record, device, (int32_t device, tb_event* event, tb_stream* stream), (device, event, stream), 0)           \
  X(event_query, device, (int32_t device, tb_event* event), (device, event), 0)                                       \
  X(thread_bind, device, (int32_t device), (device), 0)                                                               \
  X(device_synchronize, device, (int32_t device), (device), 0)                                                        \
  X(memory_info, device, (int32_t device, uint64_t* out_free, uint64_t* out_total), (device, out_free, out_total), 0) \
  X(memory_fill, device,                                                                                              \
    (int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size, tb_stream* stream),       \
    (device, dst, pattern, pattern_bytes, size, stream), 0)                                                           \
  X(memory_copy_2d, device,                                                                                           \
    (int32_t device, void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch, uint64_t width,              \
     uint64_t height, uint32_t kind, tb_stream* stream),                                                              \
    (device, dst, dst_pitch, src, src_pitch, width, height, kind, stream), 0)                                         \
  X(memory_query, -1, (const void* ptr, tb_pointer_info* out_info), (ptr, out_info), 0)                               \
  X(stream_query, device, (int32_t device, tb_stream* stream), (device, stream), 0)                                   \
  X(stream_host_function, device, (int32_t device, tb_stream* stream, tb_host_function fn, void* arg),                \
    (device, stream, fn, arg), 0)                                                                                     \
  X(event_synchronize, device, (int32_t device, tb_event* event), (device, event), 0)                                 \
  X(event_elapsed, device, (int32_t device, tb_event* start, tb_event* end, int64_t* out_ns),                         \
    (device, start, end, out_ns), 0)                                                                                  \
  X(peer_can_access, device, (int32_t device, int32_t peer, int32_t* out), (device, peer, out), 0)

enum slot {
#define SLOT_INDEX(name, device, parameters, arguments, gives_back) SLOT_##name,
  SLOTS(SLOT_INDEX)
#undef SLOT_INDEX
      NUM_SLOTS
};

static const char* const names[] = {
#define SLOT_NAME(name, device, parameters, arguments, gives_back) #name,
    SLOTS(SLOT_NAME)
#undef SLOT_NAME
};

/* The last two are in no version of the header. */
static const tb_status statuses[] = {TB_STATUS_NOT_READY,
                                     TB_STATUS_UNSUPPORTED,
                                     TB_STATUS_OUT_OF_MEMORY,
                                     TB_STATUS_INVALID_ARGUMENT,
                                     TB_STATUS_INTERNAL,
                                     TB_STATUS_TIMEOUT,
                                     42,
                                     -7};
#define NUM_STATUSES ((int)(sizeof statuses / sizeof *statuses))

static const tb_host* host;
static tb_core_table good;
static atomic_uint per_million[NUM_SLOTS];
static atomic_uint_least64_t counts[NUM_SLOTS][NUM_STATUSES + 1]; /* the last: DEVICE_LOST */
static atomic_int lost[MAX_DEVICES], losing;
static pthread_rwlock_t calls[MAX_DEVICES]; /* read while a call is under way, written to lose the device */
static atomic_uint_least64_t seeds;

static uint64_t draw(void) {
  static _Thread_local uint64_t state;
  if (!state) state = 0x9e3779b97f4a7c15u * (1 + atomic_fetch_add(&seeds, 1));
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static void lose(int32_t device) {
  pthread_rwlock_wrlock(&calls[device]);
  if (!lost[device]) good.device_synchronize(device);
  lost[device] = 1;
  pthread_rwlock_unlock(&calls[device]);
}

/* Begins a call for a device, or for none (-1). False if the device is lost. */
static int enter(int32_t device) {
  if (device < 0) return 1;
  pthread_rwlock_rdlock(&calls[device]);
  return !lost[device];
}

static void leave(int32_t device) {
  if (device >= 0) pthread_rwlock_unlock(&calls[device]);
}

static int may_be_not_ready(enum slot slot) {
  return slot == SLOT_event_query || slot == SLOT_stream_query;
}

/* How this call fails, or OK. */
static tb_status chance(enum slot slot, int32_t device) {
  int which;
  if (draw() % 1000000 >= atomic_load(&per_million[slot])) return TB_STATUS_OK;
  if (device >= 0 && atomic_load(&losing)) {
    ++counts[slot][NUM_STATUSES];
    lose(device);
    return host->fail(TB_STATUS_DEVICE_LOST, "%s: the device fell off the bus", names[slot]);
  }
  which = (int)(draw() % NUM_STATUSES);
  if (statuses[which] == TB_STATUS_NOT_READY && may_be_not_ready(slot)) which = 4; /* that would be an answer */
  ++counts[slot][which];
  if (draw() % 4 == 0) return statuses[which]; /* without a word */
  return host->fail(statuses[which], "%s fails by chance", names[slot]);
}

#define CALL(name, device, parameters, arguments, gives_back)         \
  static tb_status name parameters {                                  \
    const int32_t on = device;                                        \
    const tb_status fault = chance(SLOT_##name, on);                  \
    tb_status status;                                                 \
    if (fault && !(gives_back)) return fault;                         \
    if (!enter(on)) {                                                 \
      leave(on);                                                      \
      return host->fail(TB_STATUS_DEVICE_LOST, "the device is gone"); \
    }                                                                 \
    status = good.name arguments;                                     \
    leave(on);                                                        \
    return fault ? fault : status;                                    \
  }
SLOTS(CALL)

/* What the good device lacks, so that it can fail. */
static tb_status bind_nothing(int32_t device) {
  (void)device;
  return TB_STATUS_OK;
}

static tb_status copy_rows(int32_t device, void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch,
                           uint64_t width, uint64_t height, uint32_t kind, tb_stream* stream) {
  tb_status status = TB_STATUS_OK;
  for (uint64_t row = 0; row < height && !status; ++row)
    status = good.memory_copy(kind == TB_COPY_DEVICE_TO_HOST ? -1 : device, (char*)dst + row * dst_pitch,
                              kind == TB_COPY_HOST_TO_DEVICE ? -1 : device, (const char*)src + row * src_pitch, width,
                              kind, stream);
  return status;
}

TB_EXPORT const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  static tb_plugin plugin;
  static tb_core_table core;
  const tb_plugin* whole;
  tb_plugin_entry_function entry = NULL;
  void* library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    the_host->fail(TB_STATUS_INTERNAL, "%s", dlerror());
    return NULL;
  }
  *(void**)&entry = dlsym(library, TB_PLUGIN_ENTRY_NAME);
  whole = entry(the_host);
  if (!whole) return NULL;
  host = the_host;
  good = *whole->core;
  core = good;
  if (!good.thread_bind) good.thread_bind = bind_nothing;
  if (!good.memory_copy_2d) good.memory_copy_2d = copy_rows;
#define SET(name, device, parameters, arguments, gives_back) \
  if (good.name) core.name = name;
  SLOTS(SET)
#undef SET
  for (int i = 0; i < MAX_DEVICES; ++i) pthread_rwlock_init(&calls[i], NULL);
  plugin = *whole;
  plugin.core = &core;
  return &plugin;
}

/* ---- for the test that drives it; any thread, any time ---- */

TB_EXPORT int chaos_num_slots(void) {
  return NUM_SLOTS;
}
TB_EXPORT const char* chaos_slot_name(int slot) {
  return names[slot];
}
TB_EXPORT int chaos_num_statuses(void) {
  return NUM_STATUSES + 1;
}
/* Of the last one, DEVICE_LOST, chaos_lose_devices decides: while it is on, every fault of a call for a device is that. */
TB_EXPORT int32_t chaos_status(int index) {
  return index < NUM_STATUSES ? statuses[index] : TB_STATUS_DEVICE_LOST;
}
TB_EXPORT void chaos_set_rate(int slot, unsigned faults_per_million_calls) {
  atomic_store(&per_million[slot], faults_per_million_calls);
}
TB_EXPORT void chaos_lose_devices(int on) {
  atomic_store(&losing, on);
}
TB_EXPORT int chaos_is_lost(int device) {
  return atomic_load(&lost[device]);
}
/* Faults so far. */
TB_EXPORT uint64_t chaos_count(int slot, int status_index) {
  return atomic_load(&counts[slot][status_index]);
}
