/* A device whose driver has a current device per thread, as many have: LIBRARY, which is xcpu, where every slot that works on
 * a device fails unless thread_bind has made that one the calling thread's. With the tables of tables.h. Who forgets to
 * bind once cannot use it. */
#include "wrapper.h"

#include "tables.h"

static __thread int32_t bound = -1;

FUNCTION(bind, thread_bind) {
  bound = device;
  return TB_STATUS_OK;
}

static tb_status check(int32_t device, const char* slot) {
  if (device < 0 || device == bound) return TB_STATUS_OK;
  return host->fail(TB_STATUS_INVALID_ARGUMENT, "%s on device %d was called by a thread of device %d", slot,
                    (int)device, (int)bound);
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
  good.ccl.struct_size = 0; /* of its own communicators nothing here says which device is theirs */
  add_tables();
#define BIND(slot) \
  if (MADE(slot)) MADE(slot) = slot##_bound;
  ALL_SLOTS(BIND)
  MADE(thread_bind) = bind;
  return &plugin;
}
