// The entry and the tables.
#include <cstring>

#include "allocation.h"
#include "common/boundary.h"
#include "device.h"
#include "matmul.h"
#include "module.h"
#include "options.h"
#include "result.h"
#include "stream.h"

namespace ocl {
namespace {

tb_kernel_table make_kernel_table() {
  tb_kernel_table table =
      PLUGIN_TABLE(tb_kernel_table, module_load, module_unload, module_function, module_launch, module_image);
  matmul_kernels(&table.kernels, &table.num_kernels);
  table.module_formats = module_formats();
  return table;
}

const void* find_table(const char* name) {
  static const tb_kernel_table kernels = make_kernel_table();
  return std::strcmp(name, "kernels.1") == 0 ? &kernels : nullptr;
}

const tb_plugin* load() {
  result r = read_options();
  if (r.ok()) r = load_functions();
  if (!r.ok()) {
    report(r);
    return nullptr;
  }
  static constexpr tb_core_table table =
      PLUGIN_TABLE(tb_core_table, device_count, device_properties, initialize, device_synchronize, memory_allocate,
                   memory_free, memory_info, memory_query, memory_copy, memory_copy_2d, memory_fill, stream_create,
                   stream_destroy, stream_synchronize, stream_query, stream_wait_event, stream_host_function,
                   event_create, event_destroy, event_record, event_query, event_synchronize, event_elapsed);
  static const tb_plugin plugin{sizeof(tb_plugin), TB_ABI_MAJOR, TB_ABI_MINOR, "ocl", "torch_backend", "1.0", &table,
                                find_table,        option_keys()};
  return &plugin;
}

} // namespace
} // namespace ocl

const tb_plugin* tb_plugin_entry(const tb_host* host) {
  ocl::set_host(host);
  return ocl::load();
}
