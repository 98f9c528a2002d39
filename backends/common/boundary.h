// What every call goes through on its way in and out.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>

#include "forked_child.h"
#include "result.h"

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
#define PLUGIN_SET(table, ...) PLUGIN_EXPAND(PLUGIN_EACH(table, __VA_ARGS__))

// A macro calls itself again in each expansion of what it has left, of which there are more than a table has slots.
#define PLUGIN_EACH(table, slot, ...)          \
  table.slot = ::plugin::boundary<slot>::call; \
  __VA_OPT__(PLUGIN_AGAIN PLUGIN_PARENTHESES(table, __VA_ARGS__))
#define PLUGIN_AGAIN() PLUGIN_EACH
#define PLUGIN_PARENTHESES ()
#define PLUGIN_EXPAND(...) PLUGIN_EXPAND_16(PLUGIN_EXPAND_16(PLUGIN_EXPAND_16(PLUGIN_EXPAND_16(__VA_ARGS__))))
#define PLUGIN_EXPAND_16(...) PLUGIN_EXPAND_4(PLUGIN_EXPAND_4(PLUGIN_EXPAND_4(PLUGIN_EXPAND_4(__VA_ARGS__))))
#define PLUGIN_EXPAND_4(...) PLUGIN_EXPAND_1(PLUGIN_EXPAND_1(PLUGIN_EXPAND_1(PLUGIN_EXPAND_1(__VA_ARGS__))))
#define PLUGIN_EXPAND_1(...) __VA_ARGS__
