// Process groups: torch.distributed's backend for the device.

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "torch_backend/csrc/Module.h"

#ifdef TB_DISTRIBUTED

#include "csrc/distributed/HostBackend.h"

namespace {

/// Python's reference to a backend, which ends without the GIL: the backend waits for threads that may need it.
template <typename T>
class UnlockedPtr {
 public:
  UnlockedPtr() = default;
  explicit UnlockedPtr(T* object) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(object)) {}
  UnlockedPtr(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}
  UnlockedPtr(const UnlockedPtr&) = default;
  UnlockedPtr(UnlockedPtr&&) noexcept = default;
  UnlockedPtr& operator=(const UnlockedPtr&) = default;
  UnlockedPtr& operator=(UnlockedPtr&&) noexcept = default;
  ~UnlockedPtr() {
    if (pointer_ && PyGILState_Check()) {
      const pybind11::gil_scoped_release unlocked;
      pointer_.reset();
    }
  }
  T* get() const noexcept {
    return pointer_.get();
  }
  T* operator->() const noexcept {
    return pointer_.get();
  }

 private:
  c10::intrusive_ptr<T> pointer_;
};

} // namespace

PYBIND11_DECLARE_HOLDER_TYPE(T, UnlockedPtr<T>, true)

namespace py = pybind11;

namespace torch_backend::python {

void init_distributed(py::module_& m) {
  m.attr("has_distributed") = true;
  using Options = HostBackend::Options;
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(m, "HostBackendOptions")
      .def("__deepcopy__",
           [](const Options& self, const py::dict& /*memo*/) { return c10::make_intrusive<Options>(self); });
  py::class_<HostBackend, c10d::Backend, UnlockedPtr<HostBackend>>(m, "HostBackend")
      .def(py::init([](std::string name, const c10::intrusive_ptr<c10d::Backend>& transport,
                       std::chrono::milliseconds timeout, HostBackend::MakeTransport make_transport) {
             return UnlockedPtr<HostBackend>(
                 c10::make_intrusive<HostBackend>(std::move(name), transport, timeout, std::move(make_transport)));
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
