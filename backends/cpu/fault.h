// Failures on demand: the option "xcpu.fault" names the calls that fail, and how.
#pragma once

#include "result.h"

namespace xcpu {

// The slots of tb_core_table, tb_graph_table, tb_kernel_table and tb_ccl_table that this plugin offers.
#define XCPU_SLOTS(X)     \
  X(device_count)         \
  X(device_properties)    \
  X(memory_allocate)      \
  X(memory_free)          \
  X(memory_copy)          \
  X(stream_create)        \
  X(stream_destroy)       \
  X(stream_synchronize)   \
  X(stream_wait_event)    \
  X(event_create)         \
  X(event_destroy)        \
  X(event_record)         \
  X(event_query)          \
  X(initialize)           \
  X(device_synchronize)   \
  X(memory_info)          \
  X(memory_fill)          \
  X(memory_query)         \
  X(memory_map)           \
  X(memory_unmap)         \
  X(stream_query)         \
  X(stream_host_function) \
  X(event_synchronize)    \
  X(event_elapsed)        \
  X(peer_can_access)      \
  X(ipc_export)           \
  X(ipc_import)           \
  X(ipc_close)            \
  X(address_reserve)      \
  X(address_release)      \
  X(memory_commit)        \
  X(memory_decommit)      \
  X(capture_begin)        \
  X(capture_end)          \
  X(stream_is_capturing)  \
  X(graph_instantiate)    \
  X(graph_launch)         \
  X(graph_destroy)        \
  X(module_load)          \
  X(module_unload)        \
  X(module_function)      \
  X(module_launch)        \
  X(module_image)         \
  X(unique_id_create)     \
  X(comm_create)          \
  X(comm_destroy)         \
  X(comm_abort)           \
  X(comm_query_error)     \
  X(group_begin)          \
  X(group_end)            \
  X(send)                 \
  X(recv)                 \
  X(all_reduce)           \
  X(reduce)               \
  X(broadcast)            \
  X(all_gather)           \
  X(reduce_scatter)       \
  X(all_to_all)

enum class slot {
#define XCPU_SLOT(name) name,
  XCPU_SLOTS(XCPU_SLOT)
#undef XCPU_SLOT
};

const char* slot_name(slot s);

// Reads the option at load. Only if it is set then, possibly to "", is it read again at every call; else calls pay one
// test of a constant.
result read_faults();

namespace detail {
extern bool faults_enabled;
result next_fault(slot s, int32_t device);
} // namespace detail

// How this call of the slot has to fail, or ok. `device` is -1 for slots that name none.
inline result injected_fault(slot s, int32_t device) {
  return detail::faults_enabled ? detail::next_fault(s, device) : result();
}

} // namespace xcpu
