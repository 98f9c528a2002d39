// The entry and the tables.
#include <cstring>
#include <vector>

#include "attention.h"
#include "ccl.h"
#include "common/boundary.h"
#include "convolution.h"
#include "device.h"
#include "graph.h"
#include "matmul.h"
#include "module.h"
#include "options.h"
#include "result.h"
#include "stream.h"
#include "trace.h"
#include "virtual_memory.h"

namespace xcuda {
namespace {

tb_core_table make_table() {
  tb_core_table table =
      PLUGIN_TABLE(tb_core_table, device_count, device_properties, initialize, device_synchronize, memory_allocate,
                   memory_free, memory_info, memory_query, memory_copy, memory_copy_2d, memory_fill, host_register,
                   host_unregister, stream_create, stream_destroy, stream_synchronize, stream_query, stream_wait_event,
                   stream_host_function, event_create, event_destroy, event_record, event_query, event_synchronize,
                   event_elapsed, peer_can_access, address_reserve, address_release, memory_commit, memory_decommit);
  if (settings().stream_alloc) return table;
  PLUGIN_SET(table, ipc_export, ipc_import, ipc_close);
  return table;
}

tb_kernel_table make_kernel_table() {
  tb_kernel_table table =
      PLUGIN_TABLE(tb_kernel_table, module_load, module_unload, module_function, module_launch, module_image);
  static const auto kernels = [] {
    std::vector<const tb_kernel*> all;
    add_matmul_kernels(&all);
    add_convolution_kernels(&all);
    add_attention_kernels(&all);
    return all;
  }();
  table.kernels = kernels.data();
  table.num_kernels = kernels.size();
  table.module_formats = module_formats();
  return table;
}

const void* find_table(const char* name) {
  static constexpr tb_graph_table graph = PLUGIN_TABLE(tb_graph_table, capture_begin, capture_end, stream_is_capturing,
                                                       graph_instantiate, graph_launch, graph_destroy);
  static const tb_kernel_table kernels = make_kernel_table();
  if (std::strcmp(name, "graph.1") == 0) return &graph;
  if (std::strcmp(name, "kernels.1") == 0) return &kernels;
  if (std::strcmp(name, "prof.1") == 0) return profiler();
  return std::strcmp(name, "ccl.1") == 0 ? collectives() : nullptr;
}

const tb_plugin* load() {
  result r = read_options();
  if (r.ok()) r = load_functions();
  if (!r.ok()) {
    report(r);
    return nullptr;
  }
  static const tb_core_table table = make_table();
  static const tb_plugin plugin{sizeof(tb_plugin), TB_ABI_MAJOR, TB_ABI_MINOR, "xcuda", "torch_backend", "1.0", &table,
                                find_table,        option_keys()};
  return &plugin;
}

} // namespace
} // namespace xcuda

const tb_plugin* tb_plugin_entry(const tb_host* host) {
  xcuda::set_host(host);
  return xcuda::load();
}
