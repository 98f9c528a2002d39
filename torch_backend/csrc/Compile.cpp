// Compiled graphs.

#include <memory>
#include <vector>

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "csrc/ops/host/GraphCall.h"
#include "torch_backend/csrc/Module.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

constexpr const char* kCapsule = "torch_backend.HostGraph";

/// A graph that was compiled for the CPU, to be called with a list of inputs, which it empties.
struct HostGraph {
  py::object call;             // with a list of CPU tensors and numbers; returns a sequence
  std::vector<bool> on_device; // by result
  c10::DeviceIndex device;     // of graphs that take no tensor of the device; -1: the current one
  int64_t seeds;               // as many random numbers are appended to the inputs if there are any

  py::object run(const py::list& inputs) const;
};

py::object steal(PyObject* object) {
  if (object == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(object);
}

py::object HostGraph::run(const py::list& inputs) const {
  const auto count = inputs.size();
  auto index = device;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* input = PyList_GET_ITEM(inputs.ptr(), i);
    if (THPVariable_Check(input) && THPVariable_Unpack(input).is_privateuseone()) {
      index = THPVariable_Unpack(input).device().index();
      break;
    }
  }
  GraphCall run(index);
  py::list stand_ins(count + (seeds > 0 ? 1 : 0));
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* input = PyList_GET_ITEM(inputs.ptr(), i);
    PyObject* stand_in = THPVariable_Check(input) && THPVariable_Unpack(input).is_privateuseone()
                             ? THPVariable_Wrap(run.stand_in(THPVariable_Unpack(input)))
                             : Py_NewRef(input);
    PyList_SET_ITEM(stand_ins.ptr(), i, steal(stand_in).release().ptr());
  }
  if (seeds > 0) {
    PyList_SET_ITEM(stand_ins.ptr(), count, steal(THPVariable_Wrap(draw_seeds(seeds, index))).release().ptr());
  }
  PyList_SetSlice(inputs.ptr(), 0, PY_SSIZE_T_MAX, nullptr); // their memory is the graph's to free
  run.enter();
  const py::object returned = steal(PyObject_CallOneArg(call.ptr(), stand_ins.ptr()));
  run.leave();
  const py::object sequence = steal(PySequence_Fast(returned.ptr(), "A compiled graph did not return a sequence."));
  const auto results = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()));
  TORCH_CHECK(results == on_device.size(), "A compiled graph returned ", results, " values, not ", on_device.size(),
              ".");
  PyObject** items = PySequence_Fast_ITEMS(sequence.ptr());
  for (std::size_t i = 0; i < results; ++i) {
    if (THPVariable_Check(items[i])) {
      run.expect_result(THPVariable_Unpack(items[i]));
    }
  }
  py::list out(results);
  for (std::size_t i = 0; i < results; ++i) {
    PyObject* result = nullptr;
    // One tensor that is returned twice is one tensor.
    for (std::size_t j = 0; Py_REFCNT(items[i]) > 1 && j < i && result == nullptr; ++j) {
      result = items[j] == items[i] ? Py_NewRef(PyList_GET_ITEM(out.ptr(), j)) : nullptr;
    }
    if (result == nullptr) {
      result = THPVariable_Check(items[i]) ? THPVariable_Wrap(run.result(THPVariable_Unpack(items[i]), on_device[i]))
                                           : Py_NewRef(items[i]);
    }
    PyList_SET_ITEM(out.ptr(), i, steal(result).release().ptr());
  }
  return out;
}

PyObject* call_host_graph(PyObject* self, PyObject* inputs) noexcept {
  HANDLE_TH_ERRORS
  const auto* graph = static_cast<const HostGraph*>(PyCapsule_GetPointer(self, kCapsule));
  if (graph == nullptr) {
    throw py::error_already_set();
  }
  TORCH_CHECK_TYPE(PyList_Check(inputs), "A compiled graph is called with one list of its inputs.");
  return graph->run(py::reinterpret_borrow<py::list>(inputs)).release().ptr();
  END_HANDLE_TH_ERRORS
}

PyMethodDef call_method{"host_graph", call_host_graph, METH_O, "Runs a compiled graph with a list, which it empties."};

py::object host_graph(py::object call, std::vector<bool> on_device, int device, int64_t seeds) {
  auto graph = std::make_unique<HostGraph>(
      HostGraph{std::move(call), std::move(on_device), static_cast<c10::DeviceIndex>(device), seeds});
  const py::capsule self(graph.get(), kCapsule, [](PyObject* capsule) {
    delete static_cast<HostGraph*>(PyCapsule_GetPointer(capsule, kCapsule));
  });
  graph.release();
  return steal(PyCFunction_New(&call_method, self.ptr()));
}

} // namespace

void init_compile(py::module_& m) {
  m.def("host_graph", host_graph, py::arg("call"), py::arg("on_device"), py::arg("device"), py::arg("seeds"));
}

} // namespace torch_backend::python
