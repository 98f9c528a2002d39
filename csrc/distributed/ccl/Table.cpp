#include "csrc/distributed/ccl/Table.h"

#include "csrc/core/Runtime.h"

namespace torch_backend::ccl {

const tb_ccl_table* table() {
  auto* plugin = active_plugin();
  return plugin && plugin->tables().ccl ? &*plugin->tables().ccl : nullptr;
}

} // namespace torch_backend::ccl
