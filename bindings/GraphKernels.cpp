// Kernels of compiled graphs: torch_backend/compile/modules.

#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <bit>

#include "bindings/Module.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/GraphKernel.h"
#include "csrc/ops/compiled/engine/KernelText.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/packages/Contents.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

using compiled::GraphKernel;
using compiled::ValueType;

/// Units, cost, the tensors, the numbers.
void launch(GraphKernel& kernel, const py::args& args) {
  constexpr std::size_t kMost = 256;
  const auto& text = kernel.text();
  const auto num_pointers = static_cast<std::size_t>(text.num_pointers);
  const auto num_numbers = static_cast<std::size_t>(text.num_numbers);
  TORCH_CHECK_TYPE(args.size() == 2 + num_pointers + num_numbers, text.name,
                   " takes the units of its work, their cost, ", num_pointers, " tensors and ", num_numbers,
                   " numbers; got ", args.size(), " arguments.");
  std::array<const void*, kMost> pointers;
  std::array<int64_t, kMost> words;
  c10::Device device(c10::DeviceType::PrivateUse1, 0);
  for (std::size_t i = 0; i < num_pointers; ++i) {
    PyObject* const argument = args[2 + i].ptr();
    TORCH_CHECK_TYPE(THPVariable_Check(argument), text.name, ": argument ", 2 + i, " is not a tensor.");
    const auto& tensor = THPVariable_Unpack(argument);
    TORCH_CHECK_VALUE(tensor.device().is_privateuseone() && (i == 0 || tensor.device() == device), text.name,
                      " takes tensors of one device of ", device_api().name(), "; argument ", 2 + i, " is on ",
                      tensor.device(), ".");
    device = tensor.device();
    pointers[i] = tensor.const_data_ptr();
  }
  for (std::size_t i = 0; i < num_numbers; ++i) {
    const py::handle argument = args[2 + num_pointers + i];
    words[i] = PyFloat_Check(argument.ptr()) ? std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(argument.ptr()))
                                             : argument.cast<int64_t>();
  }
  const auto units = args[0].cast<int64_t>();
  const auto cost = args[1].cast<int64_t>();
  const py::gil_scoped_release no_gil;
  kernel.launch(device.index(), units, cost, pointers.data(), words.data());
}

/// Compilations read the disk and wait for the driver: without the GIL.
using NoGil = py::call_guard<py::gil_scoped_release>;

} // namespace

void init_graph_kernels(py::module_& m) {
  py::class_<GraphKernel>(m, "GraphKernel")
      .def(py::init([](std::string name, std::string texts, std::string body, bool is_double, bool is_32_bit,
                       int num_pointers, int num_numbers, bool may_fail, int64_t per_block) {
             return new GraphKernel({std::move(name), std::move(texts), std::move(body),
                                     is_double ? ValueType::f64 : ValueType::f32, is_32_bit, num_pointers, num_numbers,
                                     may_fail, per_block});
           }),
           py::arg("name"), py::arg("texts"), py::arg("body"), py::kw_only(), py::arg("is_double"),
           py::arg("is_32_bit"), py::arg("num_pointers"), py::arg("num_numbers"), py::arg("may_fail"),
           py::arg("per_block"))
      .def(
          "compile", [](GraphKernel& kernel, int device) { kernel.compile(device); }, NoGil())
      .def("__call__", launch);
  m.def("pointwise_formula", [](const char* overload) {
    const auto* const entry = compiled::find_pointwise(overload);
    TORCH_CHECK_INDEX(entry, overload, " is not in codegen/kernels/pointwise.yaml, or not in this PyTorch.");
    return py::make_tuple(entry->parameters, entry->floating, entry->integral, entry->boolean, entry->floating_texts);
  });
  m.def("runs_in_stretches", compiled::runs_in_stretches, NoGil());
  m.def("block_items", compiled::block_items, NoGil());
  m.def("computes_double", [](int device) { return compiled::computes(device, ValueType::f64); }, NoGil());
  m.def("most_pointers", compiled::most_pointers);
  m.def("kernel_traits", packages::described, NoGil());
}

} // namespace torch_backend::python
