#include "csrc/core/OptionalTables.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/TableCheck.h"
#include "slots.h"

namespace torch_backend {
namespace {

/// Rank 0 sends it to every other one through the store.
constexpr uint64_t kMaxUniqueIdBytes = 1 << 16;

template <typename Table>
using Check = void (*)(TableCheck&, const Table&);

void check_graph(TableCheck& check, const tb_graph_table& table) {
  check.are_code({TB_GRAPH_SLOTS(TB_LIST_SLOT)});
  check.require({TB_GRAPH_REQUIRED_SLOTS(TB_LIST_SLOT)});
}

void check_ccl(TableCheck& check, const tb_ccl_table& table) {
  check.are_code({TB_CCL_SLOTS(TB_LIST_SLOT)});
  if (table.unique_id_bytes == 0 || table.unique_id_bytes > kMaxUniqueIdBytes) {
    check.add(c10::str("unique_id_bytes is ", table.unique_id_bytes, "; it must be 1 to ", kMaxUniqueIdBytes));
  }
  check.require({TB_CCL_REQUIRED_SLOTS(TB_LIST_SLOT)});
  check.all_or_none({TB_SLOT(table, group_begin), TB_SLOT(table, group_end)}, "a group begins and ends");
}

void check_profiler(TableCheck& check, const tb_profiler_table& table) {
  check.are_code({TB_PROF_SLOTS(TB_LIST_SLOT)});
  check.require({TB_PROF_REQUIRED_SLOTS(TB_LIST_SLOT)});
  check.all_or_none({TB_SLOT(table, range_push), TB_SLOT(table, range_pop)}, "a range is pushed and popped");
}

template <typename Table>
std::optional<Table> read(const void* offered, const char* name, const std::string& plugin, Check<Table> check_slots) {
  if (!offered) {
    return std::nullopt;
  }
  TableCheck check;
  const auto table = check.read<Table>(offered);
  check_slots(check, table);
  check.raise(c10::str("The table \"", name, "\" of plugin '", plugin, "'"));
  return table;
}

} // namespace

OptionalTables read_optional_tables(const void* (*table)(const char* name), const std::string& plugin) {
  if (!table) {
    return {};
  }
  return {read<tb_graph_table>(table("graph.1"), "graph.1", plugin, check_graph),
          read<tb_ccl_table>(table("ccl.1"), "ccl.1", plugin, check_ccl),
          read<tb_profiler_table>(table("prof.1"), "prof.1", plugin, check_profiler)};
}

} // namespace torch_backend
