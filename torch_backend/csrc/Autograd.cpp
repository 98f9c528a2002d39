// Autograd's device threads.

#include <torch/csrc/autograd/engine.h>

#include "torch_backend/csrc/Module.h"

namespace py = pybind11;

namespace torch_backend::python {

void init_autograd(py::module_& m) {
  m.def(
      "stop_autograd_threads", [] { torch::autograd::Engine::get_default_engine().stop(); },
      py::call_guard<py::gil_scoped_release>());
}

} // namespace torch_backend::python
