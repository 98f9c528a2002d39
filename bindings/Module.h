// The topics of torch_backend._C, one file each.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_backend::python {

void init_plugin(pybind11::module_& m);
void init_device(pybind11::module_& m);
void init_stream(pybind11::module_& m);
void init_autograd(pybind11::module_& m);
void init_random(pybind11::module_& m);
void init_fallback(pybind11::module_& m);
void init_operators(pybind11::module_& m);
void init_customization(pybind11::module_& m);
void init_memory(pybind11::module_& m);
void init_distributed(pybind11::module_& m);
void init_graph(pybind11::module_& m);
void init_graph_trees(pybind11::module_& m);
void init_graph_kernels(pybind11::module_& m);
void init_processes(pybind11::module_& m);
void init_metadata(pybind11::module_& m);
void init_compile(pybind11::module_& m);

} // namespace torch_backend::python
