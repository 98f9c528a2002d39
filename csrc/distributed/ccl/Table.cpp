#include "csrc/distributed/ccl/Table.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/Runtime.h"

namespace torch_backend::ccl {
namespace {

std::optional<tb_ccl_table> read(const Plugin& plugin) {
  const auto* offered = static_cast<const tb_ccl_table*>(plugin.table("ccl.1"));
  if (!offered) {
    return std::nullopt;
  }
  tb_ccl_table table{};
  std::memcpy(&table, offered, std::min<std::size_t>(offered->struct_size, sizeof(table)));
  std::vector<std::string> unset;
  const auto require = [&](bool set, const char* slot) {
    if (!set) {
      unset.emplace_back(slot);
    }
  };
  require(table.unique_id_bytes > 0, "unique_id_bytes");
  require(table.unique_id_create, "unique_id_create");
  require(table.comm_create, "comm_create");
  require(table.comm_destroy, "comm_destroy");
  require(table.send, "send");
  require(table.recv, "recv");
  require(!table.group_begin || table.group_end, "group_end");
  require(!table.group_end || table.group_begin, "group_begin");
  TORCH_CHECK_VALUE(unset.empty(), "Device '", plugin.name(), "' offers the table ccl.1, but leaves unset what it ",
                    "needs: ", c10::Join(", ", unset), ". See torch_backend/device.h.");
  return table;
}

} // namespace

const tb_ccl_table* table() {
  auto* plugin = active_plugin();
  if (!plugin) {
    return nullptr;
  }
  static const std::optional<tb_ccl_table> only = read(*plugin); // there is one plugin per process
  return only ? &*only : nullptr;
}

} // namespace torch_backend::ccl
