// Process groups: torch.distributed's backend for the device.

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "torch_backend/csrc/Module.h"

#ifdef TB_DISTRIBUTED

#include "csrc/distributed/HostBackend.h"

namespace py = pybind11;

namespace torch_backend::python {

void init_distributed(py::module_& m) {
  m.attr("has_distributed") = true;
  HostBackend::set_run_unlocked([](void (*action)(void*), void* self) {
    if (Py_IsInitialized() && PyGILState_Check()) {
      const py::gil_scoped_release unlocked;
      action(self);
    } else {
      action(self);
    }
  });
  using Options = HostBackend::Options;
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(m, "HostBackendOptions")
      .def("__deepcopy__",
           [](const Options& self, const py::dict& /*memo*/) { return c10::make_intrusive<Options>(self); });
  py::class_<HostBackend, c10d::Backend, c10::intrusive_ptr<HostBackend>>(m, "HostBackend")
      .def(py::init([](std::string name, const c10::intrusive_ptr<c10d::Backend>& transport,
                       std::chrono::milliseconds timeout, HostBackend::MakeTransport make_transport) {
             return c10::make_intrusive<HostBackend>(std::move(name), transport, timeout, std::move(make_transport));
           }),
           py::arg("name"), py::arg("transport"), py::arg("timeout"), py::arg("make_transport"))
      .def_property_readonly(
          "options",
          [](HostBackend& self) { return c10::static_intrusive_pointer_cast<Options>(self.getBackendOptions()); })
      .def("get_error", &HostBackend::getError)
      // What PyTorch asks of ranks that are in no part of a split.
      .def("perform_nocolor_split", [](const HostBackend&, const py::object& /*device*/) {});
}

} // namespace torch_backend::python

#else

namespace torch_backend::python {

void init_distributed(pybind11::module_& m) {
  m.attr("has_distributed") = false;
}

} // namespace torch_backend::python

#endif
