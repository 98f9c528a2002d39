// Which kernel source serves which operator.

#include <pybind11/stl.h>

#include "bindings/Module.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/families/Families.h"
#include "csrc/ops/dispatch/OperatorTable.h"
#include "csrc/ops/kernel/RegisterKernels.h"

namespace py = pybind11;

namespace torch_backend::python {

void init_operators(py::module_& m) {
  m.def("operator_sources", [] {
    std::map<std::string, std::string> sources;
    for (const auto& [overload, source] : operator_sources()) {
      sources.emplace(overload, source_name(source));
    }
    return sources;
  });
  m.def("operator_calls", [] {
    std::vector<std::tuple<std::string, std::string, uint64_t>> rows;
    for (const auto& calls : operator_calls()) {
      rows.emplace_back(calls.overload, source_name(calls.source), calls.calls);
    }
    return rows;
  });
  m.def("has_modules", compiled::has_modules);
  m.def("generated_kernels", compiled::overloads);
  m.def("register_plugin_kernel", register_kernel, py::arg("overload"));
  m.def("count_operator_calls", count_operator_calls, py::arg("enable"));
}

} // namespace torch_backend::python
