// The entry and the tables.
#include <cstring>
#include <vector>

#include "allocation.h"
#include "attention.h"
#include "ccl.h"
#include "common/boundary.h"
#include "convolution.h"
#include "copy.h"
#include "device.h"
#include "event.h"
#include "graph.h"
#include "matmul.h"
#include "module.h"
#include "options.h"
#include "result.h"
#include "share.h"
#include "stream.h"
#include "trace.h"
#include "virtual_memory.h"

namespace xcuda {
namespace {

#define XCUDA_SET(name) table.name = boundary<name>::call

tb_core_table make_table() {
  tb_core_table table{};
  table.struct_size = sizeof table;
  XCUDA_SET(device_count);
  XCUDA_SET(device_properties);
  XCUDA_SET(initialize);
  XCUDA_SET(device_synchronize);
  XCUDA_SET(memory_allocate);
  XCUDA_SET(memory_free);
  XCUDA_SET(memory_info);
  XCUDA_SET(memory_query);
  XCUDA_SET(memory_copy);
  XCUDA_SET(memory_copy_2d);
  XCUDA_SET(memory_fill);
  XCUDA_SET(host_register);
  XCUDA_SET(host_unregister);
  XCUDA_SET(stream_create);
  XCUDA_SET(stream_destroy);
  XCUDA_SET(stream_synchronize);
  XCUDA_SET(stream_query);
  XCUDA_SET(stream_wait_event);
  XCUDA_SET(stream_host_function);
  XCUDA_SET(event_create);
  XCUDA_SET(event_destroy);
  XCUDA_SET(event_record);
  XCUDA_SET(event_query);
  XCUDA_SET(event_synchronize);
  XCUDA_SET(event_elapsed);
  XCUDA_SET(peer_can_access);
  XCUDA_SET(address_reserve);
  XCUDA_SET(address_release);
  XCUDA_SET(memory_commit);
  XCUDA_SET(memory_decommit);
  if (settings().stream_alloc) return table;
  XCUDA_SET(ipc_export);
  XCUDA_SET(ipc_import);
  XCUDA_SET(ipc_close);
  return table;
}

tb_graph_table make_graph_table() {
  tb_graph_table table{};
  table.struct_size = sizeof table;
  XCUDA_SET(capture_begin);
  XCUDA_SET(capture_end);
  XCUDA_SET(stream_is_capturing);
  XCUDA_SET(graph_instantiate);
  XCUDA_SET(graph_launch);
  XCUDA_SET(graph_destroy);
  return table;
}

tb_kernel_table make_kernel_table() {
  tb_kernel_table table{};
  table.struct_size = sizeof table;
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
  XCUDA_SET(module_load);
  XCUDA_SET(module_unload);
  XCUDA_SET(module_function);
  XCUDA_SET(module_launch);
  XCUDA_SET(module_image);
  return table;
}

#undef XCUDA_SET

const void* find_table(const char* name) {
  static const tb_graph_table graph = make_graph_table();
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
