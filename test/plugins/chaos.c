/* A device whose calls fail at random, made of one without faults: LIBRARY is that one's path. Whoever opens the library
 * a second time finds what sets how often, and counts: chaos_*.
 *
 * A call that fails has done nothing; only what gives back is done all the same, so that the device leaks nothing. A
 * device that is lost has finished what it was given, and is not called again. */
#include "wrapper.h"

#include <pthread.h>
#include <stdatomic.h>

#define MAX_DEVICES 64
#define FAILING_SLOTS(X) \
  X(memory_allocate)     \
  X(memory_free) X(memory_copy) TB_CORE_ASYNCHRONOUS_SLOTS(X) TB_CORE_OPTIONAL_SLOTS(X) MODULE_SLOTS(X)

enum slot {
#define INDEX(slot) AT_##slot,
  FAILING_SLOTS(INDEX) NUM_SLOTS
};

#define NAME(slot) #slot,
TB_EXPORT const char* const chaos_slots[] = {FAILING_SLOTS(NAME)};

/* Those of any call. The two before the last are in no version of the header, and the last is that of a device that is
 * lost. */
TB_EXPORT const tb_status chaos_statuses[] = {TB_STATUS_NOT_READY,
                                              TB_STATUS_UNSUPPORTED,
                                              TB_STATUS_OUT_OF_MEMORY,
                                              TB_STATUS_INVALID_ARGUMENT,
                                              TB_STATUS_INTERNAL,
                                              TB_STATUS_TIMEOUT,
                                              42,
                                              -7,
                                              TB_STATUS_DEVICE_LOST};
#define NUM_STATUSES ((int)(sizeof chaos_statuses / sizeof *chaos_statuses))
TB_EXPORT const int chaos_num_slots = NUM_SLOTS, chaos_num_statuses = NUM_STATUSES;

TB_EXPORT atomic_uint chaos_rates[NUM_SLOTS];                          /* faults per million calls */
TB_EXPORT atomic_uint_least64_t chaos_counts[NUM_SLOTS][NUM_STATUSES]; /* of faults so far */
TB_EXPORT atomic_int chaos_lost[MAX_DEVICES];
TB_EXPORT atomic_int chaos_losing;          /* while it is not 0, every fault of a call for a device loses the device */
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
  if (!chaos_lost[device]) good.core.device_synchronize(device);
  chaos_lost[device] = 1;
  pthread_rwlock_unlock(&calls[device]);
}

/* Begins a call for a device, or for none (-1). False if the device is lost. */
static int enter(int32_t device) {
  if (device < 0) return 1;
  pthread_rwlock_rdlock(&calls[device]);
  return !chaos_lost[device];
}

static void leave(int32_t device) {
  if (device >= 0) pthread_rwlock_unlock(&calls[device]);
}

static int may_be_not_ready(enum slot slot) {
  return slot == AT_event_query || slot == AT_stream_query;
}

/* How this call fails, or OK. */
static tb_status chance(enum slot slot, int32_t device) {
  int which;
  if (draw() % 1000000 >= atomic_load(&chaos_rates[slot])) return TB_STATUS_OK;
  if (device >= 0 && atomic_load(&chaos_losing)) {
    ++chaos_counts[slot][NUM_STATUSES - 1];
    lose(device);
    return host->fail(TB_STATUS_DEVICE_LOST, "%s: the device fell off the bus", chaos_slots[slot]);
  }
  which = (int)(draw() % (NUM_STATUSES - 1));
  if (chaos_statuses[which] == TB_STATUS_NOT_READY && may_be_not_ready(slot)) which = 4; /* that would be an answer */
  ++chaos_counts[slot][which];
  if (draw() % 4 == 0) return chaos_statuses[which]; /* without a word */
  return host->fail(chaos_statuses[which], "%s fails by chance", chaos_slots[slot]);
}

/* What the good device lacks, so that it can fail. */
FUNCTION(bind_nothing, thread_bind) {
  return TB_STATUS_OK;
}

static int gives_back(enum slot slot) {
  return slot == AT_memory_free || slot == AT_stream_destroy || slot == AT_event_destroy || slot == AT_memory_unmap ||
         slot == AT_host_unregister || slot == AT_ipc_close || slot == AT_module_unload;
}

#define CALL(slot)                                                    \
  FUNCTION(slot, slot) {                                              \
    const int32_t on = DEVICE_OF(TB_SLOT_##slot);                     \
    const tb_status fault = chance(AT_##slot, on);                    \
    tb_status status;                                                 \
    if (fault && !gives_back(AT_##slot)) return fault;                \
    if (!enter(on)) {                                                 \
      leave(on);                                                      \
      return host->fail(TB_STATUS_DEVICE_LOST, "the device is gone"); \
    }                                                                 \
    status = GOOD(slot);                                              \
    leave(on);                                                        \
    return fault ? fault : status;                                    \
  }
FAILING_SLOTS(CALL)

TB_EXPORT const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  host = the_host;
  if (!wrap(LIBRARY, the_host)) return NULL;
  if (!GOOD_SLOT(thread_bind)) GOOD_SLOT(thread_bind) = bind_nothing;
  if (!GOOD_SLOT(memory_copy_2d)) GOOD_SLOT(memory_copy_2d) = copy_rows;
#define SET(slot) \
  if (GOOD_SLOT(slot)) MADE(slot) = slot;
  FAILING_SLOTS(SET)
  for (int i = 0; i < MAX_DEVICES; ++i) pthread_rwlock_init(&calls[i], NULL);
  return &plugin;
}
