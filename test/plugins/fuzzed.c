/* A device with mistakes that a seed chooses: the option "seed" of the device "fuzzed". Seed 0 makes none. The same seed
 * makes the same mistakes. All of them are in what the library says: structs, tables, properties, names, results of
 * calls. Pointers of a result lead to memory, because no host could tell that they do not. */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "torch_backend/device.h"

static const tb_host* host;

/* ---- chance ---- */

static uint64_t state;

static uint64_t draw(void) { /* splitmix64 */
  uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

static uint64_t below(uint64_t count) {
  return draw() % count;
}

/* A number at which something changes, or any. */
static uint64_t number(void) {
  static const uint64_t edges[] = {0, 1, 2, 3, 7, 8, 16, 63, 64, 65, 128, 255, 256, 4096, 1ull << 30, 1ull << 31};
  switch (below(5)) {
    case 0:
      return edges[below(sizeof edges / sizeof edges[0])];
    case 1:
      return 0 - edges[below(sizeof edges / sizeof edges[0])];
    case 2:
      return (1ull << below(64)) - below(3);
    case 3:
      return below(200);
    default:
      return draw();
  }
}

static int data_at; /* an address that is no code */

static void* bad_pointer(void) {
  switch (below(5)) {
    case 0:
      return NULL;
    case 1:
      return &data_at;
    case 2:
      return (void*)(uintptr_t)(1 + below(4096));
    case 3:
      return (void*)(uintptr_t)draw();
    default:
      return (void*)(uintptr_t)~0ull;
  }
}

static char long_text[100000];

static const char* text(void) {
  static const char* const texts[] = {"",           "acme",         "Acme", "9",    "\xff\xfe", "caf\xe9",
                                      "with space", "\xed\xa0\x80", "cpu",  "a\nb", "%s%n"};
  if (below(8) == 0) return long_text;
  if (below(8) == 0) return bad_pointer();
  return texts[below(sizeof texts / sizeof texts[0])];
}

/* ---- a device that works; its streams are done with everything at once ---- */

enum { MAX_SLOTS = 64 };
static tb_status failing[MAX_SLOTS]; /* of calls by number: what they answer */
static int32_t forgets;              /* the call that answers OK without a result; 0 = none */
static int32_t misaligns;            /* bytes */
static uint64_t writes_past;         /* bytes that device_properties writes too much */
static int32_t count = 2;
static uint64_t free_bytes = 1 << 20, total_bytes = 1 << 30;
static tb_device_properties properties;

enum call {
  COUNT = 1,
  PROPERTIES,
  ALLOCATE,
  FREE,
  COPY,
  FILL,
  INFO,
  QUERY,
  INITIALIZE,
  BIND,
  SYNCHRONIZE,
  REGISTER,
  STREAM_CREATE,
  STREAM_DESTROY,
  STREAM_SYNCHRONIZE,
  STREAM_WAIT,
  STREAM_QUERY,
  HOST_FUNCTION,
  EVENT_CREATE,
  EVENT_DESTROY,
  EVENT_RECORD,
  EVENT_QUERY,
  EVENT_SYNCHRONIZE,
  EVENT_ELAPSED,
  PEER,
  BEGIN,
  END,
  CAPTURING,
  INSTANTIATE,
  LAUNCH,
  DESTROY,
  NUM_CALLS
};

#define ANSWER(call) \
  if (failing[call]) return host->fail(failing[call], "told to, caf\xe9")

static tb_status device_count(int32_t* out_count) {
  ANSWER(COUNT);
  *out_count = count;
  return TB_STATUS_OK;
}

static tb_status device_properties(int32_t device, tb_device_properties* out_properties) {
  const uint64_t room = out_properties->struct_size;
  (void)device;
  ANSWER(PROPERTIES);
  memcpy(out_properties, &properties, room < sizeof properties ? room : sizeof properties);
  memset(out_properties + 1, 0x5a, writes_past);
  return TB_STATUS_OK;
}

static tb_status memory_allocate(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out_ptr) {
  char* ptr;
  (void)device, (void)stream;
  ANSWER(ALLOCATE);
  if (kind != TB_MEMORY_DEVICE) return TB_STATUS_UNSUPPORTED;
  if (forgets == ALLOCATE) return TB_STATUS_OK;
  if (posix_memalign((void**)&ptr, 4096, (size_t)size + 4096) != 0) return TB_STATUS_OUT_OF_MEMORY;
  *out_ptr = ptr + misaligns;
  return TB_STATUS_OK;
}

static tb_status memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream) {
  (void)device, (void)kind, (void)size, (void)stream;
  ANSWER(FREE);
  free((char*)ptr - misaligns);
  return TB_STATUS_OK;
}

static tb_status memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size,
                             uint32_t kind, tb_stream* stream) {
  (void)dst_device, (void)src_device, (void)kind, (void)stream;
  ANSWER(COPY);
  memmove(dst, src, (size_t)size);
  return TB_STATUS_OK;
}

static tb_status memory_fill(int32_t device, void* dst, const void* pattern, uint32_t bytes, uint64_t size,
                             tb_stream* stream) {
  uint64_t at;
  (void)device, (void)stream;
  ANSWER(FILL);
  for (at = 0; at < size; at += bytes) memcpy((char*)dst + at, pattern, bytes);
  return TB_STATUS_OK;
}

static tb_status memory_info(int32_t device, uint64_t* out_free, uint64_t* out_total) {
  (void)device;
  ANSWER(INFO);
  *out_free = free_bytes;
  *out_total = total_bytes;
  return TB_STATUS_OK;
}

static tb_pointer_info pointer_info = {sizeof(tb_pointer_info), TB_MEMORY_DEVICE, 0, NULL, 0};

static tb_status memory_query(const void* ptr, tb_pointer_info* out_info) {
  (void)ptr;
  ANSWER(QUERY);
  *out_info = pointer_info;
  return TB_STATUS_OK;
}

static tb_status initialize(void) {
  ANSWER(INITIALIZE);
  return TB_STATUS_OK;
}

#define OF_DEVICE(name, call)             \
  static tb_status name(int32_t device) { \
    (void)device;                         \
    ANSWER(call);                         \
    return TB_STATUS_OK;                  \
  }
OF_DEVICE(thread_bind, BIND)
OF_DEVICE(device_synchronize, SYNCHRONIZE)

#define OF_HANDLE(name, type, call)                     \
  static tb_status name(int32_t device, type* handle) { \
    (void)device, (void)handle;                         \
    ANSWER(call);                                       \
    return TB_STATUS_OK;                                \
  }
OF_HANDLE(stream_destroy, tb_stream, STREAM_DESTROY)
OF_HANDLE(stream_synchronize, tb_stream, STREAM_SYNCHRONIZE)
OF_HANDLE(stream_query, tb_stream, STREAM_QUERY)
OF_HANDLE(event_destroy, tb_event, EVENT_DESTROY)
OF_HANDLE(event_query, tb_event, EVENT_QUERY)
OF_HANDLE(event_synchronize, tb_event, EVENT_SYNCHRONIZE)

static uint64_t handles;

static void* new_handle(void) {
  return (void*)(uintptr_t)(++handles * 16);
}

static tb_status stream_create(int32_t device, int32_t priority, tb_stream** out_stream) {
  (void)device, (void)priority;
  ANSWER(STREAM_CREATE);
  if (forgets != STREAM_CREATE) *out_stream = new_handle();
  return TB_STATUS_OK;
}

static tb_status event_create(int32_t device, uint32_t flags, tb_event** out_event) {
  (void)device, (void)flags;
  ANSWER(EVENT_CREATE);
  if (forgets != EVENT_CREATE) *out_event = new_handle();
  return TB_STATUS_OK;
}

static tb_status event_record(int32_t device, tb_event* event, tb_stream* stream) {
  (void)device, (void)event, (void)stream;
  ANSWER(EVENT_RECORD);
  return TB_STATUS_OK;
}

static tb_status stream_wait_event(int32_t device, tb_stream* stream, tb_event* event) {
  (void)device, (void)event, (void)stream;
  ANSWER(STREAM_WAIT);
  return TB_STATUS_OK;
}

static tb_status stream_host_function(int32_t device, tb_stream* stream, tb_host_function fn, void* arg) {
  (void)device, (void)stream;
  ANSWER(HOST_FUNCTION);
  fn(arg);
  return TB_STATUS_OK;
}

static tb_status event_elapsed(int32_t device, tb_event* start, tb_event* end, int64_t* out_elapsed_ns) {
  (void)device, (void)start, (void)end;
  ANSWER(EVENT_ELAPSED);
  *out_elapsed_ns = 1000;
  return TB_STATUS_OK;
}

static tb_status peer_can_access(int32_t device, int32_t peer, int32_t* out_can_access) {
  (void)device, (void)peer;
  ANSWER(PEER);
  *out_can_access = 1;
  return TB_STATUS_OK;
}

/* ---- optional tables ---- */

static tb_status capture_begin(int32_t device, tb_stream* stream, uint32_t mode) {
  (void)device, (void)stream, (void)mode;
  ANSWER(BEGIN);
  return TB_STATUS_OK;
}

static tb_status capture_end(int32_t device, tb_stream* stream, tb_graph** out_graph) {
  (void)device, (void)stream;
  ANSWER(END);
  if (forgets != END) *out_graph = new_handle();
  return TB_STATUS_OK;
}

static tb_status stream_is_capturing(int32_t device, tb_stream* stream, int32_t* out_is_capturing) {
  (void)device, (void)stream;
  ANSWER(CAPTURING);
  *out_is_capturing = 0;
  return TB_STATUS_OK;
}

OF_HANDLE(graph_instantiate, tb_graph, INSTANTIATE)
OF_HANDLE(graph_destroy, tb_graph, DESTROY)

static tb_status graph_launch(int32_t device, tb_graph* graph, tb_stream* stream) {
  (void)device, (void)graph, (void)stream;
  ANSWER(LAUNCH);
  return TB_STATUS_OK;
}

static tb_graph_table graph_table = {sizeof(tb_graph_table), capture_begin, capture_end,  stream_is_capturing,
                                     graph_instantiate,      graph_launch,  graph_destroy};

static tb_status trace_start(uint64_t kinds) {
  (void)kinds;
  return TB_STATUS_OK;
}
static tb_status nothing(void) {
  return TB_STATUS_OK;
}
static tb_status trace_collect(tb_trace_callback callback, void* arg) {
  tb_trace_record record = {sizeof record, TB_TRACE_KERNEL, 0, 0, 0, 0, 1, "kernel \xff", 0};
  callback(arg, &record);
  return TB_STATUS_OK;
}
static tb_status clock_pair(int32_t device, int64_t* out_device_ns, int64_t* out_host_ns) {
  struct timespec now;
  (void)device;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *out_device_ns = *out_host_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  return TB_STATUS_OK;
}

static tb_profiler_table profiler_table = {
    sizeof(tb_profiler_table), trace_start, nothing, trace_collect, trace_start, nothing, clock_pair, NULL, NULL};

static tb_status kernel(const tb_kernel_context* context, const tb_arg* args, int32_t num_args) {
  (void)context, (void)args, (void)num_args;
  return TB_STATUS_UNSUPPORTED;
}

static tb_kernel entries[] = {
    {sizeof(tb_kernel), "aten::add.out", kernel, 0, 0, NULL},
    {sizeof(tb_kernel), "aten::sub.out", kernel, 0, 0, NULL},
};
static const tb_kernel* kernels[] = {&entries[0], &entries[1]};
static tb_kernel_table kernel_table = {.struct_size = sizeof(tb_kernel_table), .kernels = kernels, .num_kernels = 2};

static tb_ccl_table ccl_table = {.struct_size = sizeof(tb_ccl_table), .unique_id_bytes = 8};

/* Replaced by bad ones now and then. */
static const void* offered[4] = {&graph_table, &kernel_table, &profiler_table, NULL};

static const void* table(const char* name) {
  static const char* const names[4] = {"graph.1", "kernels.1", "prof.1", "ccl.1"};
  int i;
  for (i = 0; i < 4; ++i)
    if (strcmp(name, names[i]) == 0) return offered[i];
  return NULL;
}

/* ---- the structs, and mistakes in them ---- */

static tb_core_table core = {
    .struct_size = sizeof(tb_core_table),
    .device_count = device_count,
    .device_properties = device_properties,
    .memory_allocate = memory_allocate,
    .memory_free = memory_free,
    .memory_copy = memory_copy,
    .initialize = initialize,
    .thread_bind = thread_bind,
    .device_synchronize = device_synchronize,
    .memory_info = memory_info,
    .memory_fill = memory_fill,
    .memory_query = memory_query,
    .peer_can_access = peer_can_access,
};

static const char* option_keys[] = {"seed", NULL};

static tb_plugin plugin = {
    .struct_size = sizeof(tb_plugin),
    .abi_major = TB_ABI_MAJOR,
    .abi_minor = TB_ABI_MINOR,
    .name = "fuzzed",
    .vendor = "chance",
    .version = "1.0",
    .core = &core,
    .table = table,
    .option_keys = option_keys,
};

static void make_asynchronous(void) {
  core.stream_create = stream_create;
  core.stream_destroy = stream_destroy;
  core.stream_synchronize = stream_synchronize;
  core.stream_wait_event = stream_wait_event;
  core.stream_query = stream_query;
  core.stream_host_function = stream_host_function;
  core.event_create = event_create;
  core.event_destroy = event_destroy;
  core.event_record = event_record;
  core.event_query = event_query;
  core.event_synchronize = event_synchronize;
  core.event_elapsed = event_elapsed;
  properties.capabilities |= TB_CAP_ASYNC | TB_CAP_EVENT_TIMING | TB_CAP_EVENT_RERECORD | TB_CAP_GRAPH;
}

/* A slot of a table from its `first` byte on. */
static void change_slot(void* a_table, size_t size) {
  const size_t slots = (size - sizeof(uint64_t)) / sizeof(void*);
  ((void**)a_table)[1 + below(slots)] = bad_pointer();
}

/* A field of the properties, as one of 32 bits or of 64. */
static void change_property(void) {
  const size_t begin = offsetof(tb_device_properties, capabilities);
  const size_t size = sizeof properties - begin;
  if (below(2)) {
    const int32_t value = (int32_t)number();
    memcpy((char*)&properties + begin + below(size / 4) * 4, &value, sizeof value);
  } else {
    const uint64_t value = number();
    memcpy((char*)&properties + begin + below(size / 8) * 8, &value, sizeof value);
  }
}

static void change_text_of_properties(void) {
  if (below(2))
    memset(properties.name, (int)(1 + below(255)), sizeof properties.name - below(2));
  else
    memset(properties.arch, (int)(1 + below(255)), sizeof properties.arch - below(2));
}

static void change_kernel(void) {
  tb_kernel* entry = &entries[below(2)];
  switch (below(6)) {
    case 0:
      entry->struct_size = number();
      break;
    case 1:
      entry->op = text();
      break;
    case 2:
      entry->function = (tb_kernel_function)bad_pointer();
      break;
    case 3:
      entry->flags = (uint32_t)number();
      break;
    case 4:
      entry->dtype_mask = bad_pointer();
      break;
    default:
      kernels[below(2)] = bad_pointer();
  }
}

static void change_table(void) {
  switch (below(7)) {
    case 0:
      offered[below(4)] = below(4) ? bad_pointer() : &ccl_table;
      break;
    case 1:
      graph_table.struct_size = number();
      break;
    case 2:
      change_slot(&graph_table, sizeof graph_table);
      break;
    case 3:
      change_slot(&profiler_table, sizeof profiler_table);
      break;
    case 4:
      kernel_table.num_kernels = number();
      break;
    case 5:
      kernel_table.struct_size = number();
      break;
    default:
      change_kernel();
  }
}

static void change_plugin(void) {
  switch (below(9)) {
    case 0:
      plugin.struct_size = number();
      break;
    case 1:
      plugin.abi_major = (uint32_t)number();
      break;
    case 2:
      plugin.abi_minor = (uint32_t)number();
      break;
    case 3:
      plugin.name = text();
      break;
    case 4:
      plugin.vendor = text();
      break;
    case 5:
      plugin.version = text();
      break;
    case 6:
      plugin.core = bad_pointer();
      break;
    case 7:
      plugin.table = (const void* (*)(const char*))bad_pointer();
      break;
    default:
      if (below(2))
        plugin.option_keys = bad_pointer();
      else
        option_keys[below(2)] = text();
  }
}

static void change_answers(void) {
  switch (below(6)) {
    case 0:
      count = (int32_t)number();
      break;
    case 1:
      free_bytes = number();
      total_bytes = number();
      break;
    case 2:
      forgets = (int32_t)below(NUM_CALLS);
      break;
    case 3:
      misaligns = (int32_t)below(128);
      break;
    case 4:
      pointer_info.kind = (uint32_t)number();
      pointer_info.device = (int32_t)number();
      break;
    default:
      failing[below(NUM_CALLS)] = (tb_status)(below(3) ? below(9) : number());
  }
}

static void make_a_mistake(void) {
  switch (below(9)) {
    case 0:
      change_plugin();
      break;
    case 1:
      core.struct_size = number();
      break;
    case 2:
      change_slot(&core, sizeof core);
      break;
    case 3:
    case 4:
      change_property();
      break;
    case 5:
      change_text_of_properties();
      break;
    case 6:
      change_table();
      break;
    case 7:
      if (below(2))
        properties.struct_size = number();
      else
        writes_past = below(200);
      break;
    default:
      change_answers();
  }
}

static void describe(void) {
  properties.struct_size = sizeof properties;
  strcpy(properties.name, "Fuzzed");
  properties.total_memory_bytes = 1 << 30;
  properties.allocation_alignment_bytes = 64;
  properties.warp_size = 1;
  properties.numa_node = -1;
  if (below(3) == 0) properties.capabilities |= TB_CAP_HOST_ACCESS | TB_CAP_HOST_COHERENT;
}

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  const char* seed;
  uint64_t mistakes;
  host = the_host;
  seed = host->option("fuzzed.seed");
  state = seed ? strtoull(seed, NULL, 10) : 0;
  mistakes = state == 0 ? 0 : 1 + below(3);
  memset(long_text, 'a', sizeof long_text - 1);
  describe();
  if (below(2)) make_asynchronous();
  while (mistakes-- > 0) make_a_mistake();
  return &plugin;
}
