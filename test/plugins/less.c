/* xcpu, offering and saying less than it can. LIBRARY is xcpu's path. What the core does instead is tested on it.
 *
 * WITHOUT            capabilities that it does not declare
 * ROWS_ONE_BY_ONE    it has no memory_copy_2d
 * MEMORY_UNKNOWN     it does not say how much memory it has
 * CCL_SIZE           the struct_size of its table ccl.1
 * CCL_REFUSES        of ccl.1 only bytes are sent, and all else that is optional, but for errors, is UNSUPPORTED
 * CCL_WITHOUT_ABORT  of ccl.1 the slots comm_abort and comm_query_error are unset */
#include "wrapper.h"

#ifndef WITHOUT
#define WITHOUT 0
#endif

FUNCTION(fewer_capabilities, device_properties) {
  const tb_status status = GOOD(device_properties);
  out_properties->capabilities &= ~(uint64_t)(WITHOUT);
  out_properties->multiprocessor_count = 0;
#ifdef MEMORY_UNKNOWN
  out_properties->total_memory_bytes = 0;
#endif
  return status;
}

/* What lies behind the table's end is no slot. */
static void never(void) {
  abort();
}

static void cut(uint64_t struct_size) {
  void (*const no_slot)(void) = never;
  char* slot = (char*)&made.ccl + struct_size;
  made.ccl.struct_size = struct_size;
  for (; slot < (char*)(&made.ccl + 1); slot += sizeof no_slot) memcpy(slot, &no_slot, sizeof no_slot);
}

static int is_byte(tb_dtype dtype) {
  return dtype.code == TB_DTYPE_UINT && dtype.bits == 8;
}

FUNCTION(send_bytes, send) {
  return is_byte(dtype) ? GOOD(send) : TB_STATUS_UNSUPPORTED;
}

FUNCTION(recv_bytes, recv) {
  return is_byte(dtype) ? GOOD(recv) : TB_STATUS_UNSUPPORTED;
}

#define REFUSED(slot)              \
  FUNCTION(slot##_refused, slot) { \
    return TB_STATUS_UNSUPPORTED;  \
  }
TB_CCL_OPTIONAL_SLOTS(REFUSED)

TB_EXPORT const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  if (!wrap(LIBRARY, the_host)) return NULL;
  MADE(device_properties) = fewer_capabilities;
#ifdef MEMORY_UNKNOWN
  MADE(memory_info) = NULL;
#endif
  if ((WITHOUT)&TB_CAP_EVENT_TIMING) MADE(event_elapsed) = NULL;
#ifdef ROWS_ONE_BY_ONE
  MADE(memory_copy_2d) = NULL;
#endif
#ifdef CCL_SIZE
  cut(CCL_SIZE);
#endif
#ifdef CCL_REFUSES
#define REFUSE(slot) MADE(slot) = slot##_refused;
  TB_CCL_OPTIONAL_SLOTS(REFUSE)
  MADE(comm_abort) = GOOD_SLOT(comm_abort);
  MADE(comm_query_error) = GOOD_SLOT(comm_query_error);
  MADE(send) = send_bytes;
  MADE(recv) = recv_bytes;
#endif
#ifdef CCL_WITHOUT_ABORT
  MADE(comm_abort) = NULL;
  MADE(comm_query_error) = NULL;
#endif
  return &plugin;
}
