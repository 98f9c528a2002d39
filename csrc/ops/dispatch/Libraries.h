// Where kernels for operators of any namespace are registered.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace torch_backend {

/// A library for the operator's namespace whose registrations last until the process ends. Threads: any.
torch::Library& library_for(const c10::OperatorHandle& op, c10::DispatchKey key);

} // namespace torch_backend
