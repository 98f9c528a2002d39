/* xcpu, offering less than it can. LIBRARY is xcpu's path. What the core does instead is tested on it.
 *
 * WITHOUT            capabilities that it does not declare
 * CCL_SIZE           the struct_size of its table ccl.1
 * CCL_REFUSES        of ccl.1 only bytes are sent, and all else that is optional is UNSUPPORTED
 * CCL_WITHOUT_ABORT  of ccl.1 the slots comm_abort and comm_query_error are unset */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "torch_backend/device.h"

#ifndef WITHOUT
#define WITHOUT 0
#endif

static const tb_plugin* whole;

static tb_status device_properties(int32_t device, tb_device_properties* out_properties) {
  const tb_status status = whole->core->device_properties(device, out_properties);
  out_properties->capabilities &= ~(uint64_t)(WITHOUT);
  return status;
}

static tb_ccl_table ccl;

#ifdef CCL_SIZE
/* What lies behind the table's end is no slot. */
static void never(void) {
  abort();
}

static void cut(void) {
  void (*const no_slot)(void) = never;
  char* end = (char*)(&ccl + 1);
  char* slot = (char*)&ccl + (CCL_SIZE);
  ccl.struct_size = CCL_SIZE;
  for (; slot < end; slot += sizeof no_slot) memcpy(slot, &no_slot, sizeof no_slot);
}
#endif

#ifdef CCL_REFUSES
static tb_ccl_table good;

static tb_status send_bytes(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
                            tb_stream* stream) {
  return dtype.code == TB_DTYPE_UINT && dtype.bits == 8 ? good.send(buffer, count, dtype, peer, comm, stream)
                                                        : TB_STATUS_UNSUPPORTED;
}

static tb_status recv_bytes(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm,
                            tb_stream* stream) {
  return dtype.code == TB_DTYPE_UINT && dtype.bits == 8 ? good.recv(buffer, count, dtype, peer, comm, stream)
                                                        : TB_STATUS_UNSUPPORTED;
}

static tb_status no_group(void) {
  return TB_STATUS_UNSUPPORTED;
}

static tb_status no_all_reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction,
                               tb_comm* comm, tb_stream* stream) {
  (void)in, (void)out, (void)count, (void)dtype, (void)reduction, (void)comm, (void)stream;
  return TB_STATUS_UNSUPPORTED;
}

static tb_status no_reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root,
                           tb_comm* comm, tb_stream* stream) {
  (void)root;
  return no_all_reduce(in, out, count, dtype, reduction, comm, stream);
}

static tb_status no_broadcast(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm,
                              tb_stream* stream) {
  return no_all_reduce(in, out, count, dtype, root, comm, stream);
}

static tb_status no_all_gather(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm,
                               tb_stream* stream) {
  return no_all_reduce(in, out, count, dtype, 0, comm, stream);
}

static tb_status no_all_to_all(const void* in, const uint64_t* send_counts, const uint64_t* send_offsets, void* out,
                               const uint64_t* recv_counts, const uint64_t* recv_offsets, tb_dtype dtype, tb_comm* comm,
                               tb_stream* stream) {
  (void)send_counts, (void)send_offsets, (void)recv_counts, (void)recv_offsets;
  return no_all_reduce(in, out, 0, dtype, 0, comm, stream);
}

static void refuse(void) {
  good = ccl;
  ccl.send = send_bytes;
  ccl.recv = recv_bytes;
  ccl.group_begin = ccl.group_end = no_group;
  ccl.all_reduce = ccl.reduce_scatter = no_all_reduce;
  ccl.reduce = no_reduce;
  ccl.broadcast = no_broadcast;
  ccl.all_gather = no_all_gather;
  ccl.all_to_all = no_all_to_all;
}
#endif

static const void* table(const char* name) {
  const void* offered = whole->table(name);
  if (!offered || strcmp(name, "ccl.1") != 0) return offered;
  ccl = *(const tb_ccl_table*)offered;
#ifdef CCL_SIZE
  cut();
#endif
#ifdef CCL_REFUSES
  refuse();
#endif
#ifdef CCL_WITHOUT_ABORT
  ccl.comm_abort = NULL;
  ccl.comm_query_error = NULL;
#endif
  return &ccl;
}

TB_EXPORT const tb_plugin* tb_plugin_entry(const tb_host* host) {
  static tb_plugin plugin;
  static tb_core_table core;
  void* library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  tb_plugin_entry_function entry = NULL;
  if (!library) {
    host->fail(TB_STATUS_INTERNAL, "%s", dlerror());
    return NULL;
  }
  *(void**)&entry = dlsym(library, TB_PLUGIN_ENTRY_NAME);
  whole = entry(host);
  if (!whole) return NULL;
  plugin = *whole;
  core = *whole->core;
  core.device_properties = device_properties;
  if ((WITHOUT)&TB_CAP_EVENT_TIMING) core.event_elapsed = NULL;
  plugin.core = &core;
  plugin.table = table;
  return &plugin;
}
