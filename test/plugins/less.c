/* xcpu, declaring less than it can: without the capabilities in the mask WITHOUT. LIBRARY is xcpu's path. What the core
 * does instead is tested on it. */
#include <dlfcn.h>
#include <stddef.h>

#include "torch_backend/device.h"

static const tb_plugin* whole;

static tb_status device_properties(int32_t device, tb_device_properties* out_properties) {
  const tb_status status = whole->core->device_properties(device, out_properties);
  out_properties->capabilities &= ~(uint64_t)(WITHOUT);
  return status;
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
  return &plugin;
}
