// Process groups: torch.distributed's backend for the device.

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/Module.h"

#ifdef TB_DISTRIBUTED

#include "csrc/distributed/BackgroundThreads.h"
#include "csrc/distributed/DeviceBackend.h"
#include "csrc/distributed/Watchdog.h"
#include "csrc/distributed/ccl/CclCommunicator.h"

namespace py = pybind11;

namespace torch_backend::python {

void init_distributed(py::module_& m) {
  m.attr("has_distributed") = true;
  pybind11::module_::import("atexit").attr("register")(pybind11::cpp_function([] {
    const pybind11::gil_scoped_release without_lock;
    finish_background(std::chrono::seconds(2)); // longer only if another rank is missing
    end_watch();
  }));
  m.def("has_device_collectives", [] { return ccl::table() != nullptr; });
  using Options = DeviceBackend::Options;
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(m, "DeviceBackendOptions")
      .def("__deepcopy__",
           [](const Options& self, const py::dict& /*memo*/) { return c10::make_intrusive<Options>(self); });
  py::class_<DeviceBackend, c10d::Backend, c10::intrusive_ptr<DeviceBackend>>(m, "DeviceBackend")
      .def(py::init([](std::string name, const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       std::chrono::milliseconds timeout, DeviceBackend::MakeGloo make_gloo) {
             return c10::make_intrusive<DeviceBackend>(std::move(name), store, rank, size, timeout,
                                                       std::move(make_gloo));
           }),
           py::arg("name"), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
           py::arg("make_gloo") = DeviceBackend::MakeGloo())
      .def_property_readonly("path", &DeviceBackend::path)
      .def_property_readonly(
          "options",
          [](DeviceBackend& self) { return c10::static_intrusive_pointer_cast<Options>(self.getBackendOptions()); })
      .def("slot_calls", &DeviceBackend::slot_calls)
      .def("get_error", &DeviceBackend::getError, py::call_guard<py::gil_scoped_release>())
      // What PyTorch asks of ranks that are in no part of a split.
      .def("perform_nocolor_split", [](const DeviceBackend&, const py::object& /*device*/) {});
}

} // namespace torch_backend::python

#else

namespace torch_backend::python {

void init_distributed(pybind11::module_& m) {
  m.attr("has_distributed") = false;
}

} // namespace torch_backend::python

#endif
