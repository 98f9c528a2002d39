// The entry and the tables.
#include <cstring>

#include "allocation.h"
#include "common/boundary.h"
#include "copy.h"
#include "device.h"
#include "event.h"
#include "matmul.h"
#include "module.h"
#include "options.h"
#include "result.h"
#include "stream.h"

namespace ocl {
namespace {

#define OCL_SET(name) table.name = boundary<name>::call

tb_core_table make_table() {
  tb_core_table table{};
  table.struct_size = sizeof table;
  OCL_SET(device_count);
  OCL_SET(device_properties);
  OCL_SET(initialize);
  OCL_SET(device_synchronize);
  OCL_SET(memory_allocate);
  OCL_SET(memory_free);
  OCL_SET(memory_info);
  OCL_SET(memory_query);
  OCL_SET(memory_copy);
  OCL_SET(memory_copy_2d);
  OCL_SET(memory_fill);
  OCL_SET(stream_create);
  OCL_SET(stream_destroy);
  OCL_SET(stream_synchronize);
  OCL_SET(stream_query);
  OCL_SET(stream_wait_event);
  OCL_SET(stream_host_function);
  OCL_SET(event_create);
  OCL_SET(event_destroy);
  OCL_SET(event_record);
  OCL_SET(event_query);
  OCL_SET(event_synchronize);
  OCL_SET(event_elapsed);
  return table;
}

tb_kernel_table make_kernel_table() {
  tb_kernel_table table{};
  table.struct_size = sizeof table;
  matmul_kernels(&table.kernels, &table.num_kernels);
  table.module_formats = module_formats();
  OCL_SET(module_load);
  OCL_SET(module_unload);
  OCL_SET(module_function);
  OCL_SET(module_launch);
  OCL_SET(module_image);
  return table;
}

#undef OCL_SET

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
  static const tb_core_table table = make_table();
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
