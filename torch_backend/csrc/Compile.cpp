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

#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/host/GraphCall.h"
#include "csrc/ops/host/HostLaunch.h"
#include "csrc/ops/tensor/StorageOf.h"
#include "torch_backend/csrc/Module.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

constexpr const char* kCapsule = "torch_backend.HostGraph";

constexpr const char* kName = "torch_backend::compiled_graph";

/// A result that is known before the graph runs.
struct Foreseen {
  enum class Kind { kNone, kInput, kResult, kNew } kind = Kind::kNone;
  std::size_t index = 0; // of that input, or that earlier result
  std::vector<int64_t> sizes, strides;
  c10::ScalarType dtype = c10::kFloat;
};

/// A stand-in for an input that the caller keeps, see Note [Compiled graphs on aliased memory].
struct Loan {
  GraphCall::Kept kept; // at this address from the first run on
  py::object stand_in;
  py::object original; // while it is lent
};

/// A graph that was compiled for the CPU, to be called with a list of inputs, which it empties.
///
/// Threads: any, with the interpreter's lock.
struct HostGraph {
  py::object call;             // with a list of CPU tensors and numbers; returns a sequence
  std::vector<bool> on_device; // by result
  c10::DeviceIndex device;     // of graphs that take no tensor of the device; -1: the current one
  int64_t seeds;               // as many random numbers are appended to the inputs if there are any
  std::optional<std::vector<Foreseen>> foreseen;
  std::vector<std::size_t> resized;                 // inputs whose storage the graph gives another size
  mutable std::vector<std::unique_ptr<Loan>> loans; // by input, those that no run has

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
  if (!foreseen || !graphs_run_on_stream()) {
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
  for (std::size_t i = 0; i < foreseen->size(); ++i) {
    const auto& result = (*foreseen)[i];
    switch (result.kind) {
      case Foreseen::Kind::kNone:
        results.append(py::none());
        break;
      case Foreseen::Kind::kInput:
        results.append(inputs[result.index]);
        break;
      case Foreseen::Kind::kResult:
        results.append(results[result.index]);
        break;
      case Foreseen::Kind::kNew: {
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

/// The stand-ins of one run that are lent. Goes with the interpreter's lock held.
class Lent {
 public:
  explicit Lent(std::vector<std::unique_ptr<Loan>>& idle) : idle_(idle) {}
  ~Lent() {
    for (auto& [index, loan] : lent_) {
      const bool free = GraphCall::settle(THPVariable_Unpack(loan->stand_in.ptr()), loan->kept,
                                          /*own=*/Py_REFCNT(loan->stand_in.ptr()) == 1);
      loan->kept.original = c10::MaybeOwned<at::Tensor>();
      loan->original = {};
      if (free) {
        idle_[index] = std::move(loan);
      }
    }
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  /// A new reference to the stand-in for the input `original` with this index.
  PyObject* lend(GraphCall& run, std::size_t index, PyObject* original, bool resized) {
    auto loan = std::move(idle_[index]);
    const auto& tensor = THPVariable_Unpack(original);
    if (loan) {
      loan->kept.original = c10::MaybeOwned<at::Tensor>::borrowed(tensor);
    }
    if (!loan || !run.lend_again(THPVariable_Unpack(loan->stand_in.ptr()), loan->kept)) {
      loan = std::make_unique<Loan>();
      loan->kept.original = c10::MaybeOwned<at::Tensor>::borrowed(tensor);
      loan->kept.resized = resized;
      loan->stand_in = steal(THPVariable_Wrap(run.lend(loan->kept)));
    }
    loan->original = py::reinterpret_borrow<py::object>(original);
    return Py_NewRef(lent_.emplace_back(index, std::move(loan)).second->stand_in.ptr());
  }

  /// After the run: what it has resized.
  void adopt(GraphCall& run) const {
    for (const auto& [index, loan] : lent_) {
      if (loan->kept.resized) {
        run.adopt(THPVariable_Unpack(loan->stand_in.ptr()), loan->kept);
      }
    }
  }

 private:
  std::vector<std::unique_ptr<Loan>>& idle_;
  c10::SmallVector<std::pair<std::size_t, std::unique_ptr<Loan>>, 8> lent_;
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
  loans.resize(count);
  Lent lent(loans);
  // The list is the caller's, and is handed on with stand-ins: the graph empties it, and frees what nobody else has.
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* input = PyList_GET_ITEM(inputs.ptr(), i);
    if (THPVariable_Check(input) && THPVariable_Unpack(input).is_privateuseone()) {
      const bool resizes = std::find(resized.begin(), resized.end(), i) != resized.end();
      PyObject* stand_in = resizes || Py_REFCNT(input) > 1 ? lent.lend(run, i, input, resizes)
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
    lent.adopt(run);
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

Foreseen foreseen_of(const py::handle& value) {
  Foreseen result;
  if (value.is_none()) {
    return result;
  }
  const auto fields = py::cast<py::tuple>(value);
  if (fields.size() == 2) {
    result.kind = py::cast<std::string>(fields[0]) == "input" ? Foreseen::Kind::kInput : Foreseen::Kind::kResult;
    result.index = py::cast<std::size_t>(fields[1]);
    return result;
  }
  result.kind = Foreseen::Kind::kNew;
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
    graph->foreseen.emplace();
    for (const auto& value : *results) {
      graph->foreseen->push_back(foreseen_of(value));
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
