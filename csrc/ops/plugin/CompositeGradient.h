// Gradients of operators that are made of others and for which the plugin has a kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_backend {

/// Note [Composite operators and gradients]
/// PyTorch has no derivative of an operator such as aten::linear: autograd sees the operators that its composite kernel
/// is made of. A kernel registered for the device alone would hide them, and gradients would be lost. So where a
/// gradient is recorded the composite kernel runs, on the autograd key, and elsewhere the plugin's.
void register_composite_gradient(const c10::OperatorHandle& op);

} // namespace torch_backend
