// Compiled graphs.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings/Module.h"
#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/host/GraphCall.h"
#include "csrc/ops/host/HostLaunch.h"
#include "csrc/ops/tensor/StorageOf.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

constexpr const char* kCapsule = "torch_backend.HostGraph";

constexpr const char* kName = "torch_backend::compiled_graph";

/// A result that is known before the graph runs.
struct KnownResult {
  enum class Kind { kNone, kInput, kResult, kNew } kind = Kind::kNone;
  std::size_t index = 0; // of that input, or that earlier result
  std::vector<int64_t> sizes, strides;
  c10::ScalarType dtype = c10::kFloat;
};

/// A stand-in for an input that the caller keeps, see Note [Compiled graphs on aliased memory].
struct StandIn {
  GraphCall::Kept kept; // at this address from the first run on
  py::object stand_in;
  py::object original; // while a run has it
};

/// A graph that was compiled for the CPU, to be called with a list of inputs, which it empties.
///
/// Threads: any, with the interpreter's lock.
struct HostGraph {
  py::object call;             // with a list of CPU tensors and numbers; returns a sequence
  std::vector<bool> on_device; // by result
  c10::DeviceIndex device;     // of graphs that take no tensor of the device; -1: the current one
  int64_t seeds;               // as many random numbers are appended to the inputs if there are any
  std::optional<std::vector<KnownResult>> known;
  std::vector<std::size_t> resized;                   // inputs whose storage the graph gives another size
  mutable std::vector<std::unique_ptr<StandIn>> idle; // by input, those that no run has

  py::object run(py::list inputs) const;

 private:
  /// The device of the graph's tensors if it may go onto the stream.
  std::optional<c10::DeviceIndex> stream_device(const py::list& inputs) const;
  py::object enqueue(const py::list& inputs, c10::DeviceIndex index) const;
};

py::object steal(PyObject* object) {
  if (object == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(object);
}

/// A run on the stream, on a thread of the plugin's.
class StreamRun {
 public:
  /// Takes the references with the interpreter's lock, which the caller holds.
  StreamRun(py::object call, py::list inputs, std::vector<std::pair<std::size_t, at::Tensor>> outputs)
      : call_(call.release().ptr()), inputs_(inputs.release().ptr()), outputs_(std::move(outputs)) {}
  ~StreamRun() {
    if (Py_IsInitialized()) {
      const py::gil_scoped_acquire lock;
      Py_DECREF(call_);
      Py_DECREF(inputs_);
    }
  }
  StreamRun(const StreamRun&) = delete;
  StreamRun& operator=(const StreamRun&) = delete;

  void operator()() const {
    TORCH_CHECK(Py_IsInitialized(), kName, " was to run after Python's end.");
    const py::gil_scoped_acquire lock;
    std::string error;
    try {
      const auto inputs = steal(PyList_GetSlice(inputs_, 0, PY_SSIZE_T_MAX)); // the graph empties it
      const auto returned = steal(PyObject_CallOneArg(call_, inputs.ptr()));
      const auto results = steal(PySequence_Fast(returned.ptr(), "A compiled graph did not return a sequence."));
      for (const auto& [index, output] : outputs_) {
        const auto& result = THPVariable_Unpack(PySequence_Fast_GET_ITEM(results.ptr(), index));
        TORCH_CHECK(result.sizes() == output.sizes() && result.scalar_type() == output.scalar_type(), kName,
                    " returned ", result.scalar_type(), " ", result.sizes(), " where ", output.scalar_type(), " ",
                    output.sizes(), " was expected.");
        output.copy_(result);
      }
    } catch (py::error_already_set& raised) { // goes with the lock held
      error = raised.what();
    }
    TORCH_CHECK(error.empty(), kName, ": ", error);
  }

 private:
  PyObject* const call_;
  PyObject* const inputs_;
  const std::vector<std::pair<std::size_t, at::Tensor>> outputs_; // CPU tensors on the memory of new results
};

std::optional<c10::DeviceIndex> HostGraph::stream_device(const py::list& inputs) const {
  if (!known || !graphs_run_on_stream()) {
    return std::nullopt;
  }
  std::optional<c10::DeviceIndex> index;
  for (const auto& input : inputs) {
    if (THPVariable_Check(input.ptr())) {
      const auto& tensor = THPVariable_Unpack(input.ptr());
      const bool plain = tensor.is_privateuseone() && tensor.layout() == c10::kStrided && has_memory(tensor) &&
                         index.value_or(tensor.device().index()) == tensor.device().index();
      if (!plain) {
        return std::nullopt;
      }
      index = tensor.device().index();
    }
  }
  return index ? index : device < 0 ? current_device() : device;
}

py::object HostGraph::enqueue(const py::list& inputs, c10::DeviceIndex index) const {
  device_api().check_usable(index, kName);
  const c10::DeviceGuard guard({c10::DeviceType::PrivateUse1, index});
  const auto stream = current_stream(index);
  py::list stand_ins;
  for (const auto& input : inputs) {
    if (THPVariable_Check(input.ptr())) {
      stand_ins.append(steal(THPVariable_Wrap(make_cpu_alias(THPVariable_Unpack(input.ptr())))));
    } else {
      stand_ins.append(input);
    }
  }
  if (seeds > 0) {
    graph::refuse_in_capture(stream, kName); // each launch would draw the same
    stand_ins.append(steal(THPVariable_Wrap(draw_seeds(seeds, index))));
  }
  std::vector<std::pair<std::size_t, at::Tensor>> outputs;
  py::list results;
  for (std::size_t i = 0; i < known->size(); ++i) {
    const auto& result = (*known)[i];
    switch (result.kind) {
      case KnownResult::Kind::kNone:
        results.append(py::none());
        break;
      case KnownResult::Kind::kInput:
        results.append(inputs[result.index]);
        break;
      case KnownResult::Kind::kResult:
        results.append(results[result.index]);
        break;
      case KnownResult::Kind::kNew: {
        at::Tensor output =
            at::detail::empty_strided_generic(result.sizes, result.strides, &device_allocator(),
                                              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), result.dtype);
        outputs.emplace_back(i, make_cpu_alias(output));
        results.append(steal(THPVariable_Wrap(std::move(output))));
      }
    }
  }
  const auto run = std::make_shared<const StreamRun>(call, std::move(stand_ins), std::move(outputs));
  enqueue_host_work(stream, kName, [run] { (*run)(); });
  // Not before: what is freed belongs to whatever comes onto the stream next, and other threads put work there.
  PyList_SetSlice(inputs.ptr(), 0, PY_SSIZE_T_MAX, nullptr);
  return results;
}

/// The stand-ins for such inputs that one run has. Goes with the interpreter's lock held.
class StandInsOfRun {
 public:
  explicit StandInsOfRun(std::vector<std::unique_ptr<StandIn>>& idle) : idle_(idle) {}
  ~StandInsOfRun() {
    for (auto& [index, each] : in_use_) {
      const bool free = GraphCall::settle(THPVariable_Unpack(each->stand_in.ptr()), each->kept,
                                          /*own=*/Py_REFCNT(each->stand_in.ptr()) == 1);
      each->kept.original = c10::MaybeOwned<at::Tensor>();
      each->original = {};
      if (free) {
        idle_[index] = std::move(each);
      }
    }
  }
  StandInsOfRun(const StandInsOfRun&) = delete;
  StandInsOfRun& operator=(const StandInsOfRun&) = delete;

  /// A new reference to the stand-in for the input `original` with this index.
  PyObject* stand_in_for(GraphCall& run, std::size_t index, PyObject* original, bool resized) {
    auto made = std::move(idle_[index]);
    const auto& tensor = THPVariable_Unpack(original);
    if (made) {
      made->kept.original = c10::MaybeOwned<at::Tensor>::borrowed(tensor);
    }
    if (!made || !run.stand_in_again(THPVariable_Unpack(made->stand_in.ptr()), made->kept)) {
      made = std::make_unique<StandIn>();
      made->kept.original = c10::MaybeOwned<at::Tensor>::borrowed(tensor);
      made->kept.resized = resized;
      made->stand_in = steal(THPVariable_Wrap(run.stand_in_for(made->kept)));
    }
    made->original = py::reinterpret_borrow<py::object>(original);
    return Py_NewRef(in_use_.emplace_back(index, std::move(made)).second->stand_in.ptr());
  }

  /// After the run: what it has resized.
  void adopt(GraphCall& run) const {
    for (const auto& [index, each] : in_use_) {
      if (each->kept.resized) {
        run.adopt(THPVariable_Unpack(each->stand_in.ptr()), each->kept);
      }
    }
  }

 private:
  std::vector<std::unique_ptr<StandIn>>& idle_;
  c10::SmallVector<std::pair<std::size_t, std::unique_ptr<StandIn>>, 8> in_use_;
};

py::object HostGraph::run(py::list inputs) const {
  if (const auto index = stream_device(inputs)) {
    return enqueue(inputs, *index);
  }
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
  idle.resize(count);
  StandInsOfRun stand_ins(idle);
  // The list is the caller's, and is handed on with stand-ins: the graph empties it, and frees what nobody else has.
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* input = PyList_GET_ITEM(inputs.ptr(), i);
    if (THPVariable_Check(input) && THPVariable_Unpack(input).is_privateuseone()) {
      const bool resizes = std::find(resized.begin(), resized.end(), i) != resized.end();
      PyObject* stand_in = resizes || Py_REFCNT(input) > 1 ? stand_ins.stand_in_for(run, i, input, resizes)
                                                           : THPVariable_Wrap(run.stand_in(THPVariable_Unpack(input)));
      PyList_SetItem(inputs.ptr(), i, steal(stand_in).release().ptr());
    }
  }
  if (seeds > 0) {
    inputs.append(steal(THPVariable_Wrap(draw_seeds(seeds, index))));
  }
  run.enter();
  py::object returned = steal(PyObject_CallOneArg(call.ptr(), inputs.ptr()));
  run.leave();
  if (!resized.empty()) {
    stand_ins.adopt(run);
  }
  if (!PyTuple_CheckExact(returned.ptr()) || Py_REFCNT(returned.ptr()) > 1) {
    returned = steal(PySequence_List(returned.ptr()));
  }
  const auto results = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(returned.ptr()));
  TORCH_CHECK(results == on_device.size(), "A compiled graph returned ", results, " values, not ", on_device.size(),
              ".");
  PyObject** items = PySequence_Fast_ITEMS(returned.ptr());
  for (std::size_t i = 0; i < results; ++i) {
    if (THPVariable_Check(items[i])) {
      run.expect_result(THPVariable_Unpack(items[i]));
    }
  }
  c10::SmallVector<std::pair<std::size_t, py::object>, 4> others; // in place of what was returned
  for (std::size_t i = 0; i < results; ++i) {
    if (!THPVariable_Check(items[i])) {
      continue;
    }
    const bool own = Py_REFCNT(items[i]) == 1;
    // One tensor that is returned twice is one tensor.
    const auto* known = own ? others.end() : std::find_if(others.begin(), others.end(), [&](const auto& other) {
      return items[other.first] == items[i];
    });
    if (known != others.end()) {
      others.emplace_back(i, py::object(known->second));
      continue;
    }
    const auto& cpu = THPVariable_Unpack(items[i]);
    auto result = run.result(cpu, on_device[i], own);
    if (!result.is_same(cpu)) {
      others.emplace_back(i, steal(THPVariable_Wrap(std::move(result))));
    }
  }
  for (auto& [i, result] : others) {
    Py_SETREF(items[i], result.release().ptr());
  }
  return returned;
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

KnownResult known_result_of(const py::handle& value) {
  KnownResult result;
  if (value.is_none()) {
    return result;
  }
  const auto fields = py::cast<py::tuple>(value);
  if (fields.size() == 2) {
    result.kind = py::cast<std::string>(fields[0]) == "input" ? KnownResult::Kind::kInput : KnownResult::Kind::kResult;
    result.index = py::cast<std::size_t>(fields[1]);
    return result;
  }
  result.kind = KnownResult::Kind::kNew;
  result.sizes = py::cast<std::vector<int64_t>>(fields[0]);
  result.strides = py::cast<std::vector<int64_t>>(fields[1]);
  result.dtype = reinterpret_cast<THPDtype*>(py::object(fields[2]).ptr())->scalar_type;
  return result;
}

py::object host_graph(py::object call, std::vector<bool> on_device, int device, int64_t seeds,
                      const std::optional<py::list>& results, std::vector<std::size_t> resized) {
  auto graph = std::make_unique<HostGraph>(HostGraph{
      std::move(call), std::move(on_device), static_cast<c10::DeviceIndex>(device), seeds, {}, std::move(resized), {}});
  if (results) {
    graph->known.emplace();
    for (const auto& value : *results) {
      graph->known->push_back(known_result_of(value));
    }
  }
  const py::capsule self(graph.get(), kCapsule, [](PyObject* capsule) {
    delete static_cast<HostGraph*>(PyCapsule_GetPointer(capsule, kCapsule));
  });
  graph.release();
  return steal(PyCFunction_New(&call_method, self.ptr()));
}

} // namespace

void init_compile(py::module_& m) {
  m.def("host_graph", host_graph, py::arg("call"), py::arg("on_device"), py::arg("device"), py::arg("seeds"),
        py::arg("results"), py::arg("resized"));
}

} // namespace torch_backend::python
