// Notes on tensors, as text.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/Module.h"
#include "csrc/torch/TensorMetadata.h"

namespace py = pybind11;

namespace torch_backend::python {

void init_metadata(py::module_& m) {
  m.def("tensor_metadata", [](const at::Tensor& tensor) { return tensor_metadata(tensor); }, py::arg("tensor"));
  m.def(
      "set_tensor_metadata",
      [](const at::Tensor& tensor, std::optional<std::string> text) { set_tensor_metadata(tensor, std::move(text)); },
      py::arg("tensor"), py::arg("text"));
  m.def("save_tensor_metadata", save_tensor_metadata);
}

} // namespace torch_backend::python
