// A plugin's functions that are slots, under the slots' names.
#pragma once

#include "result.h"

namespace plugin {

template <typename Slot>
struct slot_function;

template <typename... Args>
struct slot_function<tb_status (*)(Args...)> {
  using type = result(Args...);
};

} // namespace plugin

// In a plugin's namespace: declares the functions of all slots, of which it defines those that it has.
#define PLUGIN_DECLARE_SLOTS                                                                                          \
  PLUGIN_DECLARE(tb_core_table, device_count, device_properties, initialize, thread_bind, device_synchronize,         \
                 memory_allocate, memory_free, memory_info, memory_query, memory_copy, memory_copy_2d, memory_fill,   \
                 memory_map, memory_unmap, host_register, host_unregister, stream_create, stream_destroy,             \
                 stream_synchronize, stream_query, stream_wait_event, stream_host_function, event_create,             \
                 event_destroy, event_record, event_query, event_synchronize, event_elapsed, peer_can_access,         \
                 ipc_export, ipc_import, ipc_close, address_reserve, address_release, memory_commit, memory_decommit) \
  PLUGIN_DECLARE(tb_kernel_table, module_load, module_unload, module_function, module_launch, module_image)           \
  PLUGIN_DECLARE(tb_graph_table, capture_begin, capture_end, stream_is_capturing, graph_instantiate, graph_launch,    \
                 graph_destroy)
#define PLUGIN_DECLARE(table, ...) PLUGIN_FOR_EACH(PLUGIN_DECLARE_ONE, table, __VA_ARGS__)
#define PLUGIN_DECLARE_ONE(table, slot) ::plugin::slot_function<decltype(table::slot)>::type slot;

// PLUGIN_FOR_EACH(macro, table, a, b): macro(table, a) macro(table, b). A macro calls itself again in each expansion of what
// it has left, of which there are more than a table has slots.
#define PLUGIN_FOR_EACH(macro, table, ...) PLUGIN_EXPAND(PLUGIN_EACH(macro, table, __VA_ARGS__))
#define PLUGIN_EACH(macro, table, slot, ...) \
  macro(table, slot) __VA_OPT__(PLUGIN_AGAIN PLUGIN_PARENTHESES(macro, table, __VA_ARGS__))
#define PLUGIN_AGAIN() PLUGIN_EACH
#define PLUGIN_PARENTHESES ()
#define PLUGIN_EXPAND(...) PLUGIN_EXPAND_16(PLUGIN_EXPAND_16(PLUGIN_EXPAND_16(PLUGIN_EXPAND_16(__VA_ARGS__))))
#define PLUGIN_EXPAND_16(...) PLUGIN_EXPAND_4(PLUGIN_EXPAND_4(PLUGIN_EXPAND_4(PLUGIN_EXPAND_4(__VA_ARGS__))))
#define PLUGIN_EXPAND_4(...) PLUGIN_EXPAND_1(PLUGIN_EXPAND_1(PLUGIN_EXPAND_1(PLUGIN_EXPAND_1(__VA_ARGS__))))
#define PLUGIN_EXPAND_1(...) __VA_ARGS__
