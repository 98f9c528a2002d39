// The entry and the tables.
#include <cstring>

#include "acl.h"
#include "allocation.h"
#include "ccl.h"
#include "common/boundary.h"
#include "device.h"
#include "operators.h"
#include "options.h"
#include "ranges.h"
#include "result.h"
#include "stream.h"
#include "virtual_memory.h"

namespace npu {
namespace {

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
  static constexpr tb_core_table table =
      PLUGIN_TABLE(tb_core_table, device_count, device_properties, initialize, thread_bind, device_synchronize,
                   memory_allocate, memory_free, memory_info, memory_copy, memory_fill, stream_create, stream_destroy,
                   stream_synchronize, stream_query, stream_wait_event, stream_host_function, event_create,
                   event_destroy, event_record, event_query, event_synchronize, event_elapsed, peer_can_access,
                   address_reserve, address_release, memory_commit, memory_decommit);
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
