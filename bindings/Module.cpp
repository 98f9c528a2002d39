#include "bindings/Module.h"

#include <torch/csrc/Exceptions.h>

namespace {

/// PyTorch's own mapping of C++ exceptions (torch.OutOfMemoryError, torch.AcceleratorError, IndexError, ...).
void translate_torch_errors(std::exception_ptr error) {
  if (!error) {
    return;
  }
  try {
    std::rethrow_exception(error);
  } catch (const pybind11::builtin_exception&) {
    throw;
  } catch (const pybind11::error_already_set&) {
    throw;
  } catch (...) {
    torch::translate_exception_to_python(error);
  }
}

} // namespace

PYBIND11_MODULE(_C, m) {
  using namespace torch_backend::python;
  pybind11::register_exception_translator(translate_torch_errors);
  init_plugin(m);
  init_device(m);
  init_stream(m);
  init_autograd(m);
  init_random(m);
  init_fallback(m);
  init_operators(m);
  init_customization(m);
  init_memory(m);
  init_distributed(m);
  init_graph(m);
  init_graph_trees(m);
  init_graph_kernels(m);
  init_processes(m);
  init_metadata(m);
  init_compile(m);
}
