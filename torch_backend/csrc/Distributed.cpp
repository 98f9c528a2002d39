// Process groups: torch.distributed's backend for the device.

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "torch_backend/csrc/Module.h"

#ifdef TB_DISTRIBUTED

#include "csrc/distributed/ccl/CclBackend.h"
#include "csrc/distributed/ccl/Table.h"
#include "csrc/distributed/host/HostBackend.h"

namespace py = pybind11;

namespace torch_backend::python {

void init_distributed(py::module_& m) {
  m.attr("has_distributed") = true;
  m.def("has_device_collectives", [] { return ccl::table() != nullptr; });
  using Options = DeviceBackend::Options;
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(m, "DeviceBackendOptions")
      .def("__deepcopy__",
           [](const Options& self, const py::dict& /*memo*/) { return c10::make_intrusive<Options>(self); });
  py::class_<DeviceBackend, c10d::Backend, c10::intrusive_ptr<DeviceBackend>>(m, "DeviceBackend")
      .def_property_readonly("path", &DeviceBackend::path)
      .def_property_readonly(
          "options",
          [](DeviceBackend& self) { return c10::static_intrusive_pointer_cast<Options>(self.getBackendOptions()); })
      .def("get_error", &DeviceBackend::getError, py::call_guard<py::gil_scoped_release>())
      // What PyTorch asks of ranks that are in no part of a split.
      .def("perform_nocolor_split", [](const DeviceBackend&, const py::object& /*device*/) {});
  py::class_<HostBackend, DeviceBackend, c10::intrusive_ptr<HostBackend>>(m, "HostBackend")
      .def(py::init([](std::string name, const c10::intrusive_ptr<c10d::Backend>& transport,
                       std::chrono::milliseconds timeout, HostBackend::MakeTransport make_transport) {
             return c10::make_intrusive<HostBackend>(std::move(name), transport, timeout, std::move(make_transport));
           }),
           py::arg("name"), py::arg("transport"), py::arg("timeout"), py::arg("make_transport"));
  py::class_<ccl::CclBackend, DeviceBackend, c10::intrusive_ptr<ccl::CclBackend>>(m, "CclBackend")
      .def(py::init([](std::string name, const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       std::chrono::milliseconds timeout) {
             return c10::make_intrusive<ccl::CclBackend>(std::move(name), store, rank, size, timeout);
           }),
           py::arg("name"), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"))
      .def("slot_calls", &ccl::CclBackend::slot_calls);
}

} // namespace torch_backend::python

#else

namespace torch_backend::python {

void init_distributed(pybind11::module_& m) {
  m.attr("has_distributed") = false;
}

} // namespace torch_backend::python

#endif
