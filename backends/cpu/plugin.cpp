// The entry, the table, and what every call goes through on its way in and out.
#include <cstring>
#include <exception>
#include <new>

#include "ccl/submit.h"
#include "ccl/table.h"
#include "common/forked_child.h"
#include "copy.h"
#include "device.h"
#include "event.h"
#include "fault.h"
#include "graph.h"
#include "loss.h"
#include "memory.h"
#include "module/table.h"
#include "options.h"
#include "result.h"
#include "stream.h"

namespace xcpu {
namespace {

// These name their device in more than one way, or not at all, and fail when the work runs, or do something even if they
// fail: they check both themselves.
constexpr bool checks_itself(slot s) {
  switch (s) {
    case slot::memory_copy:
    case slot::memory_fill:
    case slot::module_launch:
    case slot::capture_end:
    case slot::send:
    case slot::recv:
    case slot::all_reduce:
    case slot::reduce:
    case slot::broadcast:
    case slot::all_gather:
    case slot::reduce_scatter:
    case slot::all_to_all:
      return true;
    default:
      return false;
  }
}

template <typename... Rest>
result enter(slot s, int32_t device, Rest...) {
  result r = injected_fault(s, device);
  return r.ok() ? check_device(device) : r;
}
template <typename... Args>
result enter(slot s, Args...) {
  return injected_fault(s, -1);
}

template <typename... Rest>
result leave(result r, int32_t device, Rest...) {
  if (r.status == TB_STATUS_DEVICE_LOST && device >= 0) lose(device);
  return r;
}
template <typename... Args>
result leave(result r, Args...) {
  return r;
}

// A function of the plugin as a slot: checks, calls, reports, and lets no exception out.
template <slot Slot, auto Function>
struct boundary;

template <slot Slot, typename... Args, result (*Function)(Args...)>
struct boundary<Slot, Function> {
  static tb_status call(Args... args) noexcept {
    try {
      if (in_forked_child()) return report(forked_child_failure());
      if constexpr (!checks_itself(Slot))
        if (result r = enter(Slot, args...); !r.ok()) return report(leave(std::move(r), args...));
      return report(leave(Function(args...), args...));
    } catch (const std::bad_alloc&) {
      return host().fail(TB_STATUS_OUT_OF_MEMORY, "%s: the host is out of memory", slot_name(Slot));
    } catch (const std::exception& e) {
      return host().fail(TB_STATUS_INTERNAL, "%s: %s", slot_name(Slot), e.what());
    }
  }
};

#define XCPU_SET(name) table.name = boundary<slot::name, name>::call

tb_core_table make_table() {
  tb_core_table table{};
  table.struct_size = sizeof table;
  XCPU_SET(device_count);
  XCPU_SET(device_properties);
  XCPU_SET(initialize);
  XCPU_SET(memory_allocate);
  XCPU_SET(memory_free);
  XCPU_SET(memory_copy);
  XCPU_SET(memory_fill);
  XCPU_SET(memory_info);
  XCPU_SET(memory_query);
  XCPU_SET(peer_can_access);
  if (settings().protect && !settings().has_modules()) {
    XCPU_SET(memory_map);
    XCPU_SET(memory_unmap);
  }
  if (settings().ipc) {
    XCPU_SET(ipc_export);
    XCPU_SET(ipc_import);
    XCPU_SET(ipc_close);
  }
  if (settings().virtual_memory) {
    XCPU_SET(address_reserve);
    XCPU_SET(address_release);
    XCPU_SET(memory_commit);
    XCPU_SET(memory_decommit);
  }
  if (settings().async) {
    XCPU_SET(stream_create);
    XCPU_SET(stream_destroy);
    XCPU_SET(stream_synchronize);
    XCPU_SET(stream_query);
    XCPU_SET(stream_wait_event);
    XCPU_SET(stream_host_function);
    XCPU_SET(event_create);
    XCPU_SET(event_destroy);
    XCPU_SET(event_record);
    XCPU_SET(event_query);
    XCPU_SET(event_synchronize);
    XCPU_SET(event_elapsed);
    XCPU_SET(device_synchronize);
  }
  return table;
}

tb_graph_table make_graph_table() {
  tb_graph_table table{};
  table.struct_size = sizeof table;
  XCPU_SET(capture_begin);
  XCPU_SET(capture_end);
  XCPU_SET(stream_is_capturing);
  XCPU_SET(graph_instantiate);
  XCPU_SET(graph_launch);
  XCPU_SET(graph_destroy);
  return table;
}

#undef XCPU_SET

#define XCPU_SET(name) table.name = boundary<slot::name, modules::name>::call

tb_kernel_table make_kernel_table() {
  tb_kernel_table table{};
  table.struct_size = sizeof table;
  table.module_formats = modules::formats();
  XCPU_SET(module_load);
  XCPU_SET(module_unload);
  XCPU_SET(module_function);
  XCPU_SET(module_launch);
  XCPU_SET(module_image);
  return table;
}

#undef XCPU_SET

#define XCPU_SET(name) table.name = boundary<slot::name, ccl::name>::call

tb_ccl_table make_ccl_table() {
  tb_ccl_table table{};
  table.struct_size = sizeof table;
  table.unique_id_bytes = ccl::kUniqueIdBytes;
  XCPU_SET(unique_id_create);
  XCPU_SET(comm_create);
  XCPU_SET(comm_destroy);
  XCPU_SET(send);
  XCPU_SET(recv);
  XCPU_SET(group_begin);
  XCPU_SET(group_end);
  XCPU_SET(comm_abort);
  XCPU_SET(comm_query_error);
  XCPU_SET(all_reduce);
  XCPU_SET(reduce);
  XCPU_SET(broadcast);
  XCPU_SET(all_gather);
  XCPU_SET(reduce_scatter);
  XCPU_SET(all_to_all);
  return table;
}

#undef XCPU_SET

const void* find_table(const char* name) {
  static const tb_graph_table graph = make_graph_table();
  static const tb_kernel_table kernels = make_kernel_table();
  static const tb_ccl_table ccl = make_ccl_table();
  if (settings().async && std::strcmp(name, "graph.1") == 0) return &graph;
  if (settings().has_modules() && std::strcmp(name, "kernels.1") == 0) return &kernels;
  return settings().ccl && std::strcmp(name, "ccl.1") == 0 ? &ccl : nullptr;
}

const tb_plugin* load() {
  result r = read_options();
  if (r.ok()) r = read_faults();
  if (!r.ok()) {
    report(r);
    return nullptr;
  }
  static tb_core_table table;
  table = make_table();
  static const tb_plugin plugin{sizeof(tb_plugin), TB_ABI_MAJOR, TB_ABI_MINOR, "xcpu", "torch_backend", "1.0", &table,
                                find_table,        option_keys()};
  return &plugin;
}

} // namespace
} // namespace xcpu

const tb_plugin* tb_plugin_entry(const tb_host* host) {
  xcpu::set_host(host);
  return xcpu::load();
}
