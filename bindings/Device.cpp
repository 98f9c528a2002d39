// Devices: current one, properties, synchronization.

#include <pybind11/stl.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "bindings/Module.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/SyncDebug.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

c10::DeviceIndex checked(int64_t device) {
  TORCH_CHECK_INDEX(device >= -1 && device < kMaxDevices, "Device index ", device,
                    " is out of range: ", device_api().name(), " has ", static_cast<int>(device_count()), " devices.");
  return static_cast<c10::DeviceIndex>(device);
}

} // namespace

void init_device(py::module_& m) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  m.def("is_initialized", [] { return active_plugin() && active_plugin()->api().initialized(); });
  m.def("initialize", [] { device_api().initialize(); }, no_gil);
  m.def("is_in_bad_fork", [] { return active_plugin() && active_plugin()->api().in_bad_fork(); });
  m.def("device_count", [] { return static_cast<int>(device_count()); });
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int64_t device) { set_device(checked(device)); }, py::arg("device"));
  m.def(
      "exchange_device", [](int64_t device) { return static_cast<int>(exchange_device(checked(device))); },
      py::arg("device"));
  m.def(
      "maybe_exchange_device", [](int64_t device) { return static_cast<int>(exchange_device(checked(device))); },
      py::arg("device"));
  m.def(
      "synchronize",
      [](int64_t device) {
        const py::gil_scoped_release release;
        synchronize_device(checked(device));
      },
      py::arg("device") = -1);
  m.def(
      "device_properties", [](int64_t device) { return device_api().properties(resolve_device(checked(device))); },
      py::arg("device") = -1);
  m.def(
      "can_access_peer",
      [](int64_t device, int64_t peer) {
        return device_api().peer_can_access(resolve_device(checked(device)), resolve_device(checked(peer)));
      },
      py::arg("device"), py::arg("peer"));
  m.def(
      "is_device_lost", [](int64_t device) { return device_api().is_lost(resolve_device(checked(device))); },
      py::arg("device"));
  m.def("get_sync_debug_mode", [] { return static_cast<int>(sync_debug_mode()); });
  m.def(
      "set_sync_debug_mode",
      [](int mode) {
        TORCH_CHECK_VALUE(mode >= 0 && mode <= 2, "The sync debug mode is 0 (default), 1 (warn) or 2 (error); got ",
                          mode, ".");
        set_sync_debug_mode(static_cast<SyncDebugMode>(mode));
      },
      py::arg("mode"));
  m.def(
      "range_push", [](const std::string& name) { torch::profiler::impl::privateuse1Stubs()->rangePush(name.c_str()); },
      py::arg("name"));
  m.def("range_pop", [] { torch::profiler::impl::privateuse1Stubs()->rangePop(); });
}

} // namespace torch_backend::python
