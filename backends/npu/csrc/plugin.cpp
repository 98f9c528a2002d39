// The entry and the tables.
#include <cstring>

#include "acl.h"
#include "allocation.h"
#include "ccl.h"
#include "common/boundary.h"
#include "copy.h"
#include "device.h"
#include "event.h"
#include "operators.h"
#include "options.h"
#include "ranges.h"
#include "result.h"
#include "stream.h"
#include "virtual_memory.h"

namespace npu {
namespace {

#define NPU_SET(name) table.name = boundary<name>::call

tb_core_table make_table() {
  tb_core_table table{};
  table.struct_size = sizeof table;
  NPU_SET(device_count);
  NPU_SET(device_properties);
  NPU_SET(initialize);
  NPU_SET(thread_bind);
  NPU_SET(device_synchronize);
  NPU_SET(memory_allocate);
  NPU_SET(memory_free);
  NPU_SET(memory_info);
  NPU_SET(memory_copy);
  NPU_SET(memory_fill);
  NPU_SET(stream_create);
  NPU_SET(stream_destroy);
  NPU_SET(stream_synchronize);
  NPU_SET(stream_query);
  NPU_SET(stream_wait_event);
  NPU_SET(stream_host_function);
  NPU_SET(event_create);
  NPU_SET(event_destroy);
  NPU_SET(event_record);
  NPU_SET(event_query);
  NPU_SET(event_synchronize);
  NPU_SET(event_elapsed);
  NPU_SET(peer_can_access);
  NPU_SET(address_reserve);
  NPU_SET(address_release);
  NPU_SET(memory_commit);
  NPU_SET(memory_decommit);
  return table;
}

#undef NPU_SET

const void* find_table(const char* name) {
  if (std::strcmp(name, "kernels.1") == 0) return &operator_table();
  if (std::strcmp(name, "ccl.1") == 0) return collectives();
  if (std::strcmp(name, "prof.1") == 0) return ranges();
  return nullptr;
}

const tb_plugin* load() {
  read_options();
  if (const result r = load_acl(); !r.ok()) {
    report(r);
    return nullptr;
  }
  static const tb_core_table table = make_table();
  static const tb_plugin plugin{sizeof(tb_plugin), TB_ABI_MAJOR, TB_ABI_MINOR, "npu", "torch_backend", "1.0", &table,
                                find_table,        option_keys()};
  return &plugin;
}

} // namespace
} // namespace npu

const tb_plugin* tb_plugin_entry(const tb_host* host) {
  npu::set_host(host);
  return npu::load();
}
