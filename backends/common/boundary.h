// What every call goes through on its way in and out.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>

#include "forked_child.h"
#include "result.h"
#include "slots.h"

namespace plugin {

// A function of the plugin, which returns a result or a status, as a slot: calls, reports, and lets no exception out.
template <auto Function>
struct boundary;

template <typename Result, typename... Args, Result (*Function)(Args...)>
struct boundary<Function> {
  static tb_status call(Args... args) noexcept {
    try {
      if (in_forked_child()) return report(forked_child_failure());
      return report(Function(args...));
    } catch (const std::bad_alloc&) {
      return host().fail(TB_STATUS_OUT_OF_MEMORY, "the host is out of memory");
    } catch (const std::invalid_argument& e) {
      return host().fail(TB_STATUS_INVALID_ARGUMENT, "%s", e.what());
    } catch (const std::exception& e) {
      return host().fail(TB_STATUS_INTERNAL, "%s", e.what());
    }
  }
};

} // namespace plugin

// PLUGIN_TABLE(tb_graph_table, capture_begin, capture_end): a table whose slots of these names are the functions of these
// names; others are NULL. PLUGIN_SET adds slots to a table.
#define PLUGIN_TABLE(type, ...)       \
  [] {                                \
    type table{};                     \
    table.struct_size = sizeof table; \
    PLUGIN_SET(table, __VA_ARGS__)    \
    return table;                     \
  }()
#define PLUGIN_SET(table, ...) PLUGIN_FOR_EACH(PLUGIN_SET_ONE, table, __VA_ARGS__)
#define PLUGIN_SET_ONE(table, slot) table.slot = ::plugin::boundary<slot>::call;
