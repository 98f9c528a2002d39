// Gradients of operators that are made of others and for which the plugin has a kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_backend {

/// Note [Composite operators and gradients]
/// PyTorch has no derivative of an operator such as aten::linear: autograd sees the operators that its composite kernel
/// is made of. A kernel registered for the device alone would hide them, and gradients would be lost. So where a
/// gradient is recorded, backward or forward, the composite kernel runs, on the autograd key, and elsewhere the plugin's.
void register_composite_gradient(const c10::OperatorHandle& op);

/// Whether autograd records what is done with `tensor`, which may be undefined: for a backward pass, or because it has a
/// tangent (torch.func.jvp, torch.autograd.forward_ad).
bool is_recorded(const at::Tensor& tensor);

} // namespace torch_backend
