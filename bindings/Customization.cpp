// What Python kernels and custom operators need that torch.library does not have.

#include <ATen/ScalarOps.h>
#include <pybind11/complex.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/Module.h"
#include "csrc/ops/native/AutocastPolicy.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

template <class Number>
at::Tensor wrapped(Number number) {
  auto tensor = at::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

} // namespace

void init_customization(py::module_& m) {
  // Overloads in this order: a bool is an int to Python.
  m.def("wrap_number", [](const py::bool_& number) { return wrapped(bool(number)); }, py::arg("number"));
  m.def("wrap_number", wrapped<int64_t>, py::arg("number"));
  m.def("wrap_number", wrapped<double>, py::arg("number"));
  m.def(
      "wrap_number", [](std::complex<double> number) { return wrapped(c10::complex<double>(number)); },
      py::arg("number"));
  m.def("set_autocast_policy", set_autocast_policy, py::arg("overload"), py::arg("policy"));
  m.def("reset_autocast_policy", reset_autocast_policy, py::arg("overload"));
  m.def("autocast_defaults", autocast_defaults);
}

} // namespace torch_backend::python
