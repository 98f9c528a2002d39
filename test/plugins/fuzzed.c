/* A device with mistakes that a seed chooses: the option "seed" of the device "fuzzed". Seed 0 makes none. The same seed
 * makes the same mistakes. All of them are in what the library says: structs, tables, properties, names, results of
 * calls. Pointers of a result lead to memory, because no host could tell that they do not.
 *
 * LIBRARY, which is fake, has the memory. Streams are done with everything at once. */
#include "wrapper.h"

#include <time.h>

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

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* One change of several: switch (below(2)) { OF(0, this) OF(1, that) } */
#define OF(number, ...) \
  case number:          \
    __VA_ARGS__;        \
    break;

/* A number at which something changes, or any. */
static uint64_t number(void) {
  static const uint64_t edges[] = {0, 1, 2, 3, 7, 8, 16, 63, 64, 65, 128, 255, 256, 4096, 1ull << 30, 1ull << 31};
  switch (below(5)) {
    OF(0, return edges[below(COUNT(edges))])
    OF(1, return 0 - edges[below(COUNT(edges))])
    OF(2, return (1ull << below(64)) - below(3))
    OF(3, return below(200))
    default:
      return draw();
  }
}

static int data_at; /* an address that is no code */

static void* bad_pointer(void) {
  switch (below(5)) {
    OF(0, return NULL)
    OF(1, return &data_at)
    OF(2, return (void*)(uintptr_t)(1 + below(4096)))
    OF(3, return (void*)(uintptr_t)draw())
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
  return texts[below(COUNT(texts))];
}

/* ---- a device that works ---- */

#define USED_SLOTS(X) TB_CORE_SLOTS(X) TB_GRAPH_SLOTS(X) TB_PROF_SLOTS(X)

enum call {
  NO_CALL,
#define CALL(slot) CALL_##slot,
  USED_SLOTS(CALL) NUM_CALLS
};

static tb_status failing[NUM_CALLS]; /* what calls answer */
static uint64_t forgets;             /* the call that answers OK without a result */
static uint64_t misaligns;           /* bytes */
static uint64_t writes_past;         /* bytes that device_properties writes too much */
static int32_t count = 2;
static int is_capturing; /* nothing is recorded */
static uint64_t free_bytes = 1 << 20, total_bytes = 1 << 30;
static tb_device_properties properties;
static tb_pointer_info pointer_info = {sizeof(tb_pointer_info), TB_MEMORY_DEVICE, 0, NULL, 0};

static void* new_handle(void) {
  static uint64_t handles;
  return (void*)(uintptr_t)(++handles * 16);
}

static void now(int64_t* out_ns) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  *out_ns = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static const tb_trace_record record = {sizeof record, TB_TRACE_KERNEL, 0, 0, 0, 0, 1, "kernel \xff", 0};

/* What a call gives, if GIVES follows; without that it only answers OK. */
#define GIVEN(slot) static tb_status(*slot##_given) PARAMETERS_OF(TB_SLOT_##slot);
USED_SLOTS(GIVEN)

#define GIVES(slot, ...)         \
  FUNCTION(slot##_gives, slot) { \
    __VA_ARGS__;                 \
    return TB_STATUS_OK;         \
  }                              \
  static tb_status(*slot##_given) PARAMETERS_OF(TB_SLOT_##slot) = slot##_gives;

#define ANSWER(slot)                                                                       \
  FUNCTION(slot, slot) {                                                                   \
    if (failing[CALL_##slot]) return host->fail(failing[CALL_##slot], "told to, caf\xe9"); \
    return slot##_given ? slot##_given ARGUMENTS_OF(TB_SLOT_##slot) : TB_STATUS_OK;        \
  }

FUNCTION(misaligned, memory_allocate) {
  tb_status status;
  size_bytes += misaligns;
  status = GOOD(memory_allocate);
  if (!status) *out_ptr = (char*)*out_ptr + misaligns;
  return status;
}

FUNCTION(bytes_of_properties, device_properties) {
  const uint64_t room = out_properties->struct_size;
  memcpy(out_properties, &properties, room < sizeof properties ? room : sizeof properties);
  memset(out_properties + 1, 0x5a, writes_past);
  return TB_STATUS_OK;
}

GIVES(device_count, *out_count = count)
GIVES(device_properties, return bytes_of_properties(device, out_properties))
GIVES(memory_allocate,
      if (forgets != CALL_memory_allocate) return misaligned(device, kind, size_bytes, stream, out_ptr))
GIVES(memory_free, ptr = (char*)ptr - misaligns; return GOOD(memory_free))
GIVES(memory_copy, memmove(dst, src, (size_t)size_bytes))
GIVES(memory_copy_2d,
      return copy_rows(device, dst, dst_pitch_bytes, src, src_pitch_bytes, width_bytes, height, kind, stream))
GIVES(memory_fill, for (; size_bytes; dst = (char*)dst + pattern_bytes, size_bytes -= pattern_bytes)
                       memcpy(dst, pattern, pattern_bytes))
GIVES(memory_info, *out_free_bytes = free_bytes, *out_total_bytes = total_bytes)
GIVES(memory_query, *out_info = pointer_info)
GIVES(peer_can_access, *out_can_access = 1)
GIVES(stream_create, if (forgets != CALL_stream_create) out_stream[0] = new_handle())
GIVES(stream_host_function, if (!is_capturing) fn(arg))
GIVES(event_create, if (forgets != CALL_event_create) out_event[0] = new_handle())
GIVES(event_elapsed, *out_elapsed_ns = 1000)
GIVES(capture_begin, is_capturing = 1)
GIVES(capture_end, is_capturing = 0; if (forgets != CALL_capture_end) out_graph[0] = new_handle())
GIVES(stream_is_capturing, *out_is_capturing = 0)
GIVES(trace_collect, callback(arg, &record))
GIVES(clock_pair, now(out_device_ns), now(out_host_ns))
USED_SLOTS(ANSWER)

static tb_status kernel(const tb_kernel_context* context, const tb_arg* args, int32_t num_args) {
  return TB_STATUS_UNSUPPORTED;
}

static tb_kernel entries[] = {
    {sizeof(tb_kernel), "aten::add.out", kernel, 0, 0, NULL},
    {sizeof(tb_kernel), "aten::sub.out", kernel, 0, 0, NULL},
};
static const tb_kernel* kernels[8192] = {&entries[0], &entries[1]}; /* NULL where num_kernels says too much */
static const char* option_keys[] = {"seed", NULL};

/* Replaced by bad ones now and then. */
static const void* offered[4] = {&made.graph, &made.kernels, &made.prof, NULL};

static const void* table(const char* name) {
  static const char* const names[4] = {"graph.1", "kernels.1", "prof.1", "ccl.1"};
  int i;
  for (i = 0; i < 4; ++i)
    if (strcmp(name, names[i]) == 0) return offered[i];
  return NULL;
}

/* ---- mistakes ---- */

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
    OF(0, entry->struct_size = number())
    OF(1, entry->op = text())
    OF(2, entry->function = (tb_kernel_function)bad_pointer())
    OF(3, entry->flags = (uint32_t)number())
    OF(4, entry->dtype_mask = bad_pointer())
    default:
      kernels[below(2)] = bad_pointer();
  }
}

static void change_table(void) {
  switch (below(7)) {
    OF(0, offered[below(4)] = below(4) ? bad_pointer() : &made.ccl)
    OF(1, made.graph.struct_size = number())
    OF(2, change_slot(&made.graph, sizeof made.graph))
    OF(3, change_slot(&made.prof, sizeof made.prof))
    OF(4, made.kernels.num_kernels = number())
    OF(5, made.kernels.struct_size = number())
    default:
      change_kernel();
  }
}

static void change_plugin(void) {
  switch (below(9)) {
    OF(0, plugin.struct_size = number())
    OF(1, plugin.abi_major = (uint32_t)number())
    OF(2, plugin.abi_minor = (uint32_t)number())
    OF(3, plugin.name = text())
    OF(4, plugin.vendor = text())
    OF(5, plugin.version = text())
    OF(6, plugin.core = bad_pointer())
    OF(7, plugin.table = (const void* (*)(const char*))bad_pointer())
    default:
      if (below(2))
        plugin.option_keys = bad_pointer();
      else
        option_keys[below(2)] = text();
  }
}

static void change_answers(void) {
  switch (below(6)) {
    OF(0, count = (int32_t)number())
    OF(1, free_bytes = number(); total_bytes = number())
    OF(2, forgets = below(NUM_CALLS))
    OF(3, misaligns = below(128))
    OF(4, pointer_info.kind = (uint32_t)number(); pointer_info.device = (int32_t)number())
    default:
      failing[below(NUM_CALLS)] = (tb_status)(below(3) ? below(9) : number());
  }
}

static void make_a_mistake(void) {
  switch (below(9)) {
    OF(0, change_plugin())
    OF(1, made.core.struct_size = number())
    OF(2, change_slot(&made.core, sizeof made.core))
    OF(3, change_property())
    OF(4, change_property())
    OF(5, change_text_of_properties())
    OF(6, change_table())
    OF(7, if (below(2)) properties.struct_size = number(); else writes_past = below(200))
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

#define USE(slot) MADE(slot) = slot;

static void work(void) {
  plugin =
      (tb_plugin){sizeof plugin, TB_ABI_MAJOR, TB_ABI_MINOR, "fuzzed", "chance", "1.0", &made.core, table, option_keys};
  TB_CORE_REQUIRED_SLOTS(USE)
  TB_CORE_OPTIONAL_SLOTS(USE)
  TB_GRAPH_SLOTS(USE)
  TB_PROF_SLOTS(USE)
  made.graph.struct_size = sizeof made.graph;
  made.prof.struct_size = sizeof made.prof;
  made.ccl = (tb_ccl_table){.struct_size = sizeof made.ccl, .unique_id_bytes = 8};
  made.kernels = (tb_kernel_table){.struct_size = sizeof made.kernels, .kernels = kernels, .num_kernels = 2};
  if (state % 2) MADE(memory_copy_2d) = NULL;
  if (!below(2)) return;
  TB_CORE_ASYNCHRONOUS_SLOTS(USE)
  properties.capabilities |= TB_CAP_ASYNC | TB_CAP_EVENT_TIMING | TB_CAP_EVENT_RERECORD | TB_CAP_GRAPH;
}

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  const char* seed;
  uint64_t mistakes;
  host = the_host;
  if (!wrap(LIBRARY, the_host)) return NULL;
  seed = host->option("fuzzed.seed");
  state = seed ? strtoull(seed, NULL, 10) : 0;
  mistakes = state == 0 ? 0 : 1 + below(3);
  memset(long_text, 'a', sizeof long_text - 1);
  describe();
  work();
  while (mistakes-- > 0) make_a_mistake();
  return &plugin;
}
