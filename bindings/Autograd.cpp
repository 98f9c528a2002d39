// Autograd: its device threads, and what it records.

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings/Module.h"
#include "csrc/ops/kernel/CompositeGradient.h"

namespace py = pybind11;

namespace torch_backend::python {

namespace {

/// Of a tensor, or of any in a sequence.
bool is_recorded(py::handle value) {
  if (THPVariable_Check(value.ptr())) {
    return torch_backend::is_recorded(THPVariable_Unpack(value.ptr()));
  }
  if (!py::isinstance<py::tuple>(value) && !py::isinstance<py::list>(value)) {
    return false;
  }
  for (const auto& each : value) {
    if (is_recorded(each)) {
      return true;
    }
  }
  return false;
}

} // namespace

void init_autograd(py::module_& m) {
  m.def(
      "stop_autograd_threads", [] { torch::autograd::Engine::get_default_engine().stop(); },
      py::call_guard<py::gil_scoped_release>());
  m.def("any_recorded", [](const py::args& args, const py::kwargs& kwargs) {
    return is_recorded(args) || is_recorded(kwargs.attr("values")().cast<py::tuple>());
  });
}

} // namespace torch_backend::python
