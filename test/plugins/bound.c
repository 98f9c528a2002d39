/* A device whose driver has a current device per thread, as many have: LIBRARY, which is xcpu, where every slot that works on
 * a device fails unless thread_bind has made that one the calling thread's. With the tables of tables.h. Who forgets to
 * bind once cannot use it. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "torch_backend/device.h"

#include "tables.h"

static const tb_host* host;
static tb_core_table good;
static __thread int32_t bound = -1;

static tb_status thread_bind(int32_t device) {
  bound = device;
  return TB_STATUS_OK;
}

static tb_status check(int32_t device, const char* slot) {
  return bound == device ? TB_STATUS_OK
                         : host->fail(TB_STATUS_INVALID_ARGUMENT, "%s on device %d was called by a thread of device %d",
                                      slot, (int)device, (int)bound);
}

/* A slot whose first parameter is the device. */
#define BOUND(slot, parameters, ...)                                 \
  static tb_status slot##_bound parameters {                         \
    const tb_status status = check(device, #slot);                   \
    return status != TB_STATUS_OK ? status : good.slot(__VA_ARGS__); \
  }

BOUND(memory_allocate, (int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out), device, kind,
      size, stream, out)
BOUND(memory_free, (int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream), device, kind, ptr,
      size, stream)
BOUND(memory_fill, (int32_t device, void* dst, const void* pattern, uint32_t bytes, uint64_t size, tb_stream* stream),
      device, dst, pattern, bytes, size, stream)
BOUND(memory_info, (int32_t device, uint64_t* out_free, uint64_t* out_total), device, out_free, out_total)
BOUND(memory_map, (int32_t device, void* ptr, uint64_t size, uint32_t access), device, ptr, size, access)
BOUND(memory_unmap, (int32_t device, void* ptr, uint64_t size, uint32_t access), device, ptr, size, access)
BOUND(device_synchronize, (int32_t device), device)
BOUND(stream_create, (int32_t device, int32_t priority, tb_stream** out), device, priority, out)
BOUND(stream_destroy, (int32_t device, tb_stream* stream), device, stream)
BOUND(stream_synchronize, (int32_t device, tb_stream* stream), device, stream)
BOUND(stream_query, (int32_t device, tb_stream* stream), device, stream)
BOUND(stream_wait_event, (int32_t device, tb_stream* stream, tb_event* event), device, stream, event)
BOUND(stream_host_function, (int32_t device, tb_stream* stream, tb_host_function fn, void* arg), device, stream, fn,
      arg)
BOUND(event_create, (int32_t device, uint32_t flags, tb_event** out), device, flags, out)
BOUND(event_destroy, (int32_t device, tb_event* event), device, event)
BOUND(event_record, (int32_t device, tb_event* event, tb_stream* stream), device, event, stream)
BOUND(event_query, (int32_t device, tb_event* event), device, event)
BOUND(event_synchronize, (int32_t device, tb_event* event), device, event)
BOUND(event_elapsed, (int32_t device, tb_event* start, tb_event* end, int64_t* out), device, start, end, out)
BOUND(peer_can_access, (int32_t device, int32_t peer, int32_t* out), device, peer, out)
BOUND(ipc_export, (int32_t device, void* ptr, tb_ipc_handle* out), device, ptr, out)
BOUND(ipc_import, (int32_t device, const tb_ipc_handle* handle, void** out), device, handle, out)
BOUND(ipc_close, (int32_t device, void* ptr), device, ptr)

BOUND(memory_copy_2d,
      (int32_t device, void* dst, uint64_t dst_pitch, const void* src, uint64_t src_pitch, uint64_t width,
       uint64_t height, uint32_t kind, tb_stream* stream),
      device, dst, dst_pitch, src, src_pitch, width, height, kind, stream)

static tb_status memory_copy_bound(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size,
                                   uint32_t kind, tb_stream* stream) {
  const int32_t device = kind == TB_COPY_DEVICE_TO_HOST || kind == TB_COPY_PEER ? src_device : dst_device;
  const tb_status status = check(device, "memory_copy");
  return status != TB_STATUS_OK ? status : good.memory_copy(dst_device, dst, src_device, src, size, kind, stream);
}

/* ---- graph.1 and ccl.1 ---- */

#define BOUND_GRAPH(slot, parameters, ...)                      \
  static tb_status slot##_bound parameters {                    \
    const tb_status status = check(device, #slot);              \
    return status != TB_STATUS_OK ? status : slot(__VA_ARGS__); \
  }
BOUND_GRAPH(capture_begin, (int32_t device, tb_stream* stream, uint32_t mode), device, stream, mode)
BOUND_GRAPH(capture_end, (int32_t device, tb_stream* stream, tb_graph** out), device, stream, out)
BOUND_GRAPH(stream_is_capturing, (int32_t device, tb_stream* stream, int32_t* out), device, stream, out)
BOUND_GRAPH(graph_instantiate, (int32_t device, tb_graph* graph), device, graph)
BOUND_GRAPH(graph_launch, (int32_t device, tb_graph* graph, tb_stream* stream), device, graph, stream)
BOUND_GRAPH(graph_destroy, (int32_t device, tb_graph* graph), device, graph)
BOUND_GRAPH(comm_create, (int32_t device, int32_t ranks, int32_t rank, const void* id, tb_comm** out), device, ranks,
            rank, id, out)

#define BOUND_COMM(name, slot, parameters, ...)                 \
  static tb_status name##_bound parameters {                    \
    const tb_status status = check(comm->device, #name);        \
    return status != TB_STATUS_OK ? status : slot(__VA_ARGS__); \
  }
BOUND_COMM(comm_destroy, comm_destroy, (tb_comm * comm), comm)
BOUND_COMM(send, send_message,
           (const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream), buffer,
           count, dtype, peer, comm, stream)
BOUND_COMM(recv, recv_message,
           (void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream), buffer,
           count, dtype, peer, comm, stream)
BOUND_COMM(all_reduce, all_reduce,
           (const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
            tb_stream* stream),
           in, out, count, dtype, reduction, comm, stream)

static tb_status clock_pair_bound(int32_t device, int64_t* out_device_ns, int64_t* out_host_ns) {
  const tb_status status = check(device, "clock_pair");
  return status != TB_STATUS_OK ? status : clock_pair(device, out_device_ns, out_host_ns);
}

static void bind_tables(void) {
  graph_table =
      (tb_graph_table){sizeof graph_table,      capture_begin_bound, capture_end_bound,  stream_is_capturing_bound,
                       graph_instantiate_bound, graph_launch_bound,  graph_destroy_bound};
  profiler_table.clock_pair = clock_pair_bound;
  ccl_table.comm_create = comm_create_bound;
  ccl_table.comm_destroy = comm_destroy_bound;
  ccl_table.send = send_bound;
  ccl_table.recv = recv_bound;
  ccl_table.all_reduce = all_reduce_bound;
}

#define BIND(slot) \
  if (table.slot) table.slot = slot##_bound

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  static tb_core_table table;
  static tb_plugin plugin;
  void* library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  tb_plugin_entry_function entry;
  const tb_plugin* whole;
  host = the_host;
  if (!library) {
    host->fail(TB_STATUS_INTERNAL, "%s", dlerror());
    return NULL;
  }
  *(void**)&entry = dlsym(library, TB_PLUGIN_ENTRY_NAME);
  if (!(whole = entry(the_host))) return NULL;
  good = *whole->core;
  add_tables(&good);
  bind_tables();
  table = good;
  table.thread_bind = thread_bind;
  BIND(memory_allocate);
  BIND(memory_free);
  BIND(memory_copy);
  BIND(memory_fill);
  BIND(memory_copy_2d);
  BIND(memory_info);
  BIND(memory_map);
  BIND(memory_unmap);
  BIND(device_synchronize);
  BIND(stream_create);
  BIND(stream_destroy);
  BIND(stream_synchronize);
  BIND(stream_query);
  BIND(stream_wait_event);
  BIND(stream_host_function);
  BIND(event_create);
  BIND(event_destroy);
  BIND(event_record);
  BIND(event_query);
  BIND(event_synchronize);
  BIND(event_elapsed);
  BIND(peer_can_access);
  BIND(ipc_export);
  BIND(ipc_import);
  BIND(ipc_close);
  plugin = *whole;
  plugin.core = &table;
  plugin.table = added_table;
  return &plugin;
}
