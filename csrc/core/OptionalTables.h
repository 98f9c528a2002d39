// A plugin's optional tables "graph.1", "ccl.1" and "prof.1". "kernels.1" is in csrc/ops/plugin/PluginKernels.h.
#pragma once

#include <optional>
#include <string>

#include "torch_backend/device.h"

namespace torch_backend {

/// Copies, with NULL for every slot past what the plugin has filled. What a table requires is set.
struct OptionalTables {
  std::optional<tb_graph_table> graph;
  std::optional<tb_ccl_table> ccl;
  std::optional<tb_profiler_table> profiler;
};

/// Ask `table`, which may be NULL, for each. Throws ValueError, naming every fault of it, if one cannot be used. `plugin`
/// is the device's name.
OptionalTables read_optional_tables(const void* (*table)(const char* name), const std::string& plugin);

} // namespace torch_backend
