// Which kernel source serves which operator.

#include <pybind11/stl.h>

#include "bindings/Module.h"
#include "csrc/ops/compiled/engine/AheadImages.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/families/Families.h"
#include "csrc/ops/dispatch/OperatorTable.h"
#include "csrc/ops/kernel/RegisterKernels.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

/// `compiler` is called with the text of a kernel, and returns its image.
void compile_ahead(std::string folder, const py::object& compiler) {
  if (compiler.is_none()) {
    compiled::compile_ahead(std::move(folder), nullptr);
    return;
  }
  auto* const kept = new py::object(compiler); // for the process, which may end after the interpreter
  compiled::compile_ahead(std::move(folder), [kept](const std::string& text) {
    const py::gil_scoped_acquire acquired;
    return std::string(py::bytes((*kept)(text)));
  });
}

} // namespace

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
  m.def("module_format", compiled::module_format);
  m.def("compile_ahead", compile_ahead, py::arg("folder"), py::arg("compiler"));
  m.def("num_ahead_images", compiled::num_ahead_images);
  m.def("generated_kernels", compiled::overloads);
  m.def("register_plugin_kernel", register_kernel, py::arg("overload"));
  m.def("count_operator_calls", count_operator_calls, py::arg("enable"));
}

} // namespace torch_backend::python
