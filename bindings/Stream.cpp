// Streams as ids: torch.Stream carries them.

#include "csrc/core/Stream.h"

#include <pybind11/stl.h>

#include "bindings/Module.h"
#include "csrc/core/Runtime.h"

namespace py = pybind11;

namespace torch_backend::python {

void init_stream(py::module_& m) {
  m.def(
      "default_stream_id", [](int device) { return default_stream(static_cast<c10::DeviceIndex>(device)).id(); },
      py::arg("device"));
  m.def(
      "external_stream_id",
      [](uint64_t handle, int device) {
        return external_stream(reinterpret_cast<tb_stream*>(handle), static_cast<c10::DeviceIndex>(device)).id();
      },
      py::arg("handle"), py::arg("device"));
  m.def(
      "stream_priority_range", [](int device) { return stream_priority_range(static_cast<c10::DeviceIndex>(device)); },
      py::arg("device") = -1);
  m.def(
      "stream_priority",
      [](int64_t id, int device) {
        const c10::Device where(c10::DeviceType::PrivateUse1, resolve_device(static_cast<c10::DeviceIndex>(device)));
        return Stream(c10::Stream(c10::Stream::UNSAFE, where, id)).priority();
      },
      py::arg("stream_id"), py::arg("device"));
}

} // namespace torch_backend::python
