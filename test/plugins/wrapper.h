/* For devices made of another one: that one's tables (`good`), those of the device made of it (`made`, a copy at first),
 * and the parameters of every slot, so that what replaces a slot is its body only:
 *
 *   FUNCTION(copy_whole_blocks, memory_copy) {
 *     size_bytes &= ~63ull;
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

#include "slots.h" /* written by codegen/slots.py: TB_SLOT_<slot>, and lists of slots */
#include "torch_backend/device.h"

/* Of kernels.1 those that return a status. */
#define MODULE_SLOTS(X) X(module_load) X(module_unload) X(module_function) X(module_launch) X(module_image)
#define ALL_SLOTS(X) TB_CORE_SLOTS(X) TB_GRAPH_SLOTS(X) TB_PROF_SLOTS(X) TB_CCL_SLOTS(X) MODULE_SLOTS(X)

#define TABLE_OF(...) TABLE_OF_(__VA_ARGS__)
#define TABLE_OF_(table, device, parameters, arguments) table
#define DEVICE_OF(...) DEVICE_OF_(__VA_ARGS__)
#define DEVICE_OF_(table, device, parameters, arguments) device
#define PARAMETERS_OF(...) PARAMETERS_OF_(__VA_ARGS__)
#define PARAMETERS_OF_(table, device, parameters, arguments) parameters
#define ARGUMENTS_OF(...) ARGUMENTS_OF_(__VA_ARGS__)
#define ARGUMENTS_OF_(table, device, parameters, arguments) arguments

#define FUNCTION(name, slot) static tb_status name PARAMETERS_OF(TB_SLOT_##slot)
#define MADE(slot) made.TABLE_OF(TB_SLOT_##slot).slot
#define GOOD_SLOT(slot) good.TABLE_OF(TB_SLOT_##slot).slot
#define GOOD(slot) GOOD_SLOT(slot) ARGUMENTS_OF(TB_SLOT_##slot)

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
    status = good.core.memory_copy(dst_device, (char*)dst + row * dst_pitch_bytes, src_device,
                                   (const char*)src + row * src_pitch_bytes, width_bytes, kind, stream);
  return status;
}
