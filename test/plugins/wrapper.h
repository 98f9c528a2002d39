/* For devices made of another one: that one's tables (`good`), those of the device made of it (`made`, a copy at first),
 * and the parameters of every slot, so that what replaces a slot is its body only:
 *
 *   FUNCTION(copy_whole_blocks, memory_copy) {
 *     size &= ~63ull;
 *     return GOOD(memory_copy);
 *   }
 *
 * and, after wrap(), MADE(memory_copy) = copy_whole_blocks. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "torch_backend/device.h"

/* ---- the slots: table, device (-1: none is named that the thread has to be bound to), parameters, arguments ---- */

#define SLOT_device_count core, -1, (int32_t* out_count), (out_count)
#define SLOT_device_properties \
  core, -1, (int32_t device, tb_device_properties* out_properties), (device, out_properties)
#define SLOT_initialize core, -1, (void), ()

#define SLOT_memory_allocate                                                                       \
  core, device, (int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out_ptr), \
      (device, kind, size, stream, out_ptr)
#define SLOT_memory_free                                                                      \
  core, device, (int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream), \
      (device, kind, ptr, size, stream)
#define SLOT_memory_copy                                                                                 \
  core, (kind == TB_COPY_DEVICE_TO_HOST || kind == TB_COPY_PEER ? src_device : dst_device),              \
      (int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size, uint32_t kind, \
       tb_stream* stream),                                                                               \
      (dst_device, dst, src_device, src, size, kind, stream)
#define SLOT_memory_copy_2d                                                                                \
  core, device,                                                                                            \
      (int32_t device, void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch, uint64_t width, \
       uint64_t height, uint32_t kind, tb_stream* stream),                                                 \
      (device, dst, dst_pitch, src, src_pitch, width, height, kind, stream)
#define SLOT_memory_fill                                                                                          \
  core, device,                                                                                                   \
      (int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size, tb_stream* stream), \
      (device, dst, pattern, pattern_bytes, size, stream)
#define SLOT_memory_info \
  core, device, (int32_t device, uint64_t* out_free, uint64_t* out_total), (device, out_free, out_total)
#define SLOT_memory_query core, -1, (const void* ptr, tb_pointer_info* out_info), (ptr, out_info)
#define SLOT_thread_bind core, device, (int32_t device), (device)
#define SLOT_device_synchronize core, device, (int32_t device), (device)
#define SLOT_peer_can_access core, device, (int32_t device, int32_t peer, int32_t* out), (device, peer, out)

#define SLOT_stream_create core, device, (int32_t device, int32_t priority, tb_stream** out), (device, priority, out)
#define SLOT_stream_destroy core, device, (int32_t device, tb_stream* stream), (device, stream)
#define SLOT_stream_synchronize core, device, (int32_t device, tb_stream* stream), (device, stream)
#define SLOT_stream_query core, device, (int32_t device, tb_stream* stream), (device, stream)
#define SLOT_stream_wait_event \
  core, device, (int32_t device, tb_stream* stream, tb_event* event), (device, stream, event)
#define SLOT_stream_host_function \
  core, device, (int32_t device, tb_stream* stream, tb_host_function fn, void* arg), (device, stream, fn, arg)
#define SLOT_event_create core, device, (int32_t device, uint32_t flags, tb_event** out), (device, flags, out)
#define SLOT_event_destroy core, device, (int32_t device, tb_event* event), (device, event)
#define SLOT_event_record core, device, (int32_t device, tb_event* event, tb_stream* stream), (device, event, stream)
#define SLOT_event_query core, device, (int32_t device, tb_event* event), (device, event)
#define SLOT_event_synchronize core, device, (int32_t device, tb_event* event), (device, event)
#define SLOT_event_elapsed \
  core, device, (int32_t device, tb_event* start, tb_event* end, int64_t* out_ns), (device, start, end, out_ns)

#define SLOT_memory_map \
  core, device, (int32_t device, void* ptr, uint64_t size, uint32_t access), (device, ptr, size, access)
#define SLOT_memory_unmap SLOT_memory_map
#define SLOT_host_register core, -1, (void* ptr, uint64_t size), (ptr, size)
#define SLOT_host_unregister core, -1, (void* ptr), (ptr)
#define SLOT_ipc_export core, device, (int32_t device, void* ptr, tb_ipc_handle* out), (device, ptr, out)
#define SLOT_ipc_import \
  core, device, (int32_t device, const tb_ipc_handle* handle, void** out_ptr), (device, handle, out_ptr)
#define SLOT_ipc_close core, device, (int32_t device, void* ptr), (device, ptr)

#define SLOT_capture_begin graph, device, (int32_t device, tb_stream* stream, uint32_t mode), (device, stream, mode)
#define SLOT_capture_end graph, device, (int32_t device, tb_stream* stream, tb_graph** out), (device, stream, out)
#define SLOT_stream_is_capturing graph, device, (int32_t device, tb_stream* stream, int32_t* out), (device, stream, out)
#define SLOT_graph_instantiate graph, device, (int32_t device, tb_graph* graph), (device, graph)
#define SLOT_graph_launch graph, device, (int32_t device, tb_graph* graph, tb_stream* stream), (device, graph, stream)
#define SLOT_graph_destroy graph, device, (int32_t device, tb_graph* graph), (device, graph)

#define SLOT_trace_start prof, -1, (uint64_t kinds), (kinds)
#define SLOT_trace_stop prof, -1, (void), ()
#define SLOT_trace_collect prof, -1, (tb_trace_callback callback, void* arg), (callback, arg)
#define SLOT_correlation_push prof, -1, (uint64_t id), (id)
#define SLOT_correlation_pop prof, -1, (void), ()
#define SLOT_clock_pair \
  prof, device, (int32_t device, int64_t* out_device_ns, int64_t* out_host_ns), (device, out_device_ns, out_host_ns)
#define SLOT_range_push prof, -1, (const char* name), (name)
#define SLOT_range_pop prof, -1, (void), ()

/* A communicator's device is known to who has made it: tables.h. */
#define SLOT_unique_id_create ccl, -1, (void* out), (out)
#define SLOT_comm_create                                                                                     \
  ccl, device, (int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm), \
      (device, num_ranks, rank, unique_id, out_comm)
#define SLOT_comm_destroy ccl, comm->device, (tb_comm * comm), (comm)
#define SLOT_comm_abort SLOT_comm_destroy
#define SLOT_comm_query_error SLOT_comm_destroy
#define SLOT_send                                                                                           \
  ccl, comm->device,                                                                                        \
      (const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream), \
      (buffer, count, dtype, peer, comm, stream)
#define SLOT_recv                                                                                                    \
  ccl, comm->device, (void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream), \
      (buffer, count, dtype, peer, comm, stream)
#define SLOT_group_begin ccl, -1, (void), ()
#define SLOT_group_end ccl, -1, (void), ()
#define SLOT_all_reduce                                                                             \
  ccl, comm->device,                                                                                \
      (const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm, \
       tb_stream* stream),                                                                          \
      (in, out, count, dtype, reduction, comm, stream)
#define SLOT_reduce_scatter SLOT_all_reduce
#define SLOT_reduce                                                                                               \
  ccl, comm->device,                                                                                              \
      (const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root, tb_comm* comm, \
       tb_stream* stream),                                                                                        \
      (in, out, count, dtype, reduction, root, comm, stream)
#define SLOT_broadcast                                                                                             \
  ccl, comm->device,                                                                                               \
      (const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm, tb_stream* stream), \
      (in, out, count, dtype, root, comm, stream)
#define SLOT_all_gather                                                                                             \
  ccl, comm->device, (const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream), \
      (in, out, count, dtype, comm, stream)
#define SLOT_all_to_all                                                                                              \
  ccl, comm->device,                                                                                                 \
      (const void* in, const uint64_t* send_counts, const uint64_t* send_offsets, void* out,                         \
       const uint64_t* recv_counts, const uint64_t* recv_offsets, tb_dtype dtype, tb_comm* comm, tb_stream* stream), \
      (in, send_counts, send_offsets, out, recv_counts, recv_offsets, dtype, comm, stream)

/* clang-format off */
#define START_SLOTS(X) X(device_count) X(device_properties) X(initialize)
#define DEVICE_SLOTS(X) \
  X(memory_allocate) X(memory_free) X(memory_copy) X(memory_copy_2d) X(memory_fill) X(memory_info) X(memory_query) \
  X(thread_bind) X(device_synchronize) X(peer_can_access)
#define STREAM_SLOTS(X) \
  X(stream_create) X(stream_destroy) X(stream_synchronize) X(stream_query) X(stream_wait_event) \
  X(stream_host_function) X(event_create) X(event_destroy) X(event_record) X(event_query) X(event_synchronize) \
  X(event_elapsed)
#define SHARING_SLOTS(X) \
  X(memory_map) X(memory_unmap) X(host_register) X(host_unregister) X(ipc_export) X(ipc_import) X(ipc_close)
#define GRAPH_SLOTS(X) \
  X(capture_begin) X(capture_end) X(stream_is_capturing) X(graph_instantiate) X(graph_launch) X(graph_destroy)
#define PROF_SLOTS(X) \
  X(trace_start) X(trace_stop) X(trace_collect) X(correlation_push) X(correlation_pop) X(clock_pair) X(range_push) \
  X(range_pop)
#define COMM_SLOTS(X) \
  X(unique_id_create) X(comm_create) X(comm_destroy) X(send) X(recv) X(comm_abort) X(comm_query_error)
#define COLLECTIVE_SLOTS(X) \
  X(group_begin) X(group_end) X(all_reduce) X(reduce) X(broadcast) X(all_gather) X(reduce_scatter) X(all_to_all)
#define CORE_SLOTS(X) START_SLOTS(X) DEVICE_SLOTS(X) STREAM_SLOTS(X) SHARING_SLOTS(X)
#define CCL_SLOTS(X) COMM_SLOTS(X) COLLECTIVE_SLOTS(X)
#define ALL_SLOTS(X) CORE_SLOTS(X) GRAPH_SLOTS(X) PROF_SLOTS(X) CCL_SLOTS(X)
/* clang-format on */

#define ONE_MORE(slot) +sizeof(void*)
_Static_assert(sizeof(tb_core_table) == 8 CORE_SLOTS(ONE_MORE), "a slot of core is missing above");
_Static_assert(sizeof(tb_graph_table) == 8 GRAPH_SLOTS(ONE_MORE), "a slot of graph.1 is missing above");
_Static_assert(sizeof(tb_profiler_table) == 8 PROF_SLOTS(ONE_MORE), "a slot of prof.1 is missing above");
_Static_assert(sizeof(tb_ccl_table) == 16 CCL_SLOTS(ONE_MORE), "a slot of ccl.1 is missing above");

#define TABLE_OF(...) TABLE_OF_(__VA_ARGS__)
#define TABLE_OF_(table, device, parameters, arguments) table
#define DEVICE_OF(...) DEVICE_OF_(__VA_ARGS__)
#define DEVICE_OF_(table, device, parameters, arguments) device
#define PARAMETERS_OF(...) PARAMETERS_OF_(__VA_ARGS__)
#define PARAMETERS_OF_(table, device, parameters, arguments) parameters
#define ARGUMENTS_OF(...) ARGUMENTS_OF_(__VA_ARGS__)
#define ARGUMENTS_OF_(table, device, parameters, arguments) arguments

#define FUNCTION(name, slot) static tb_status name PARAMETERS_OF(SLOT_##slot)
#define MADE(slot) made.TABLE_OF(SLOT_##slot).slot
#define GOOD_SLOT(slot) good.TABLE_OF(SLOT_##slot).slot
#define GOOD(slot) GOOD_SLOT(slot) ARGUMENTS_OF(SLOT_##slot)

/* ---- the two devices ---- */

#define OPTIONAL_TABLES(X) X(graph) X(prof) X(ccl) X(kernels)

static const tb_host* host;
static tb_plugin plugin;
static struct tables {
  tb_core_table core;
  tb_graph_table graph; /* of this and the next: a struct_size of 0 if it is not offered */
  tb_profiler_table prof;
  tb_ccl_table ccl;
  tb_kernel_table kernels;
} good, made;

static const void* made_table(const char* name) {
#define FIND(table) \
  if (strcmp(name, #table ".1") == 0 && made.table.struct_size) return &made.table;
  OPTIONAL_TABLES(FIND)
#undef FIND
  return NULL;
}

static void take(void* table, uint64_t size, const void* offered) {
  if (!offered) return;
  memcpy(table, offered, *(const uint64_t*)offered < size ? *(const uint64_t*)offered : size);
  memcpy(table, &size, sizeof size); /* struct_size; what the other lacks is unset */
}

/* Opens the other device: 0 if that is refused. */
static int wrap(const char* path, const tb_host* given) {
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  tb_plugin_entry_function entry;
  const tb_plugin* whole;
  if (!library) return given->fail(TB_STATUS_INTERNAL, "%s", path ? dlerror() : "no device is named"), 0;
  *(void**)&entry = dlsym(library, TB_PLUGIN_ENTRY_NAME);
  if (!(whole = entry(given))) return 0;
  memset(&good, 0, sizeof good);
  take(&good.core, sizeof good.core, whole->core);
#define TAKE(name) \
  if (whole->table) take(&good.name, sizeof good.name, whole->table(#name ".1"));
  OPTIONAL_TABLES(TAKE)
#undef TAKE
  made = good;
  plugin = *whole;
  plugin.core = &made.core;
  plugin.table = made_table;
  return 1;
}

/* For a device without memory_copy_2d. */
FUNCTION(copy_rows, memory_copy_2d) {
  const int32_t dst_device = kind == TB_COPY_DEVICE_TO_HOST ? -1 : device;
  const int32_t src_device = kind == TB_COPY_HOST_TO_DEVICE ? -1 : device;
  tb_status status = TB_STATUS_OK;
  for (uint64_t row = 0; row < height && !status; ++row)
    status = good.core.memory_copy(dst_device, (char*)dst + row * dst_pitch, src_device,
                                   (const char*)src + row * src_pitch, width, kind, stream);
  return status;
}
