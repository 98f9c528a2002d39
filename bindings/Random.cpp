// The default generators.

#include <torch/csrc/Generator.h>

#include "bindings/Module.h"
#include "csrc/core/generator/PhiloxGenerator.h"

namespace py = pybind11;

namespace torch_backend::python {

void init_random(py::module_& m) {
  m.def(
      "default_generator",
      [](int device) {
        const auto& generator = default_generator(static_cast<c10::DeviceIndex>(device));
        return py::reinterpret_steal<py::object>(THPGenerator_Wrap(generator));
      },
      py::arg("device"));
}

} // namespace torch_backend::python
