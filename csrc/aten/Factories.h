// Tensors without contents.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

/// The new `tensor`, filled if torch.use_deterministic_algorithms asks for memory that is not left uninitialized.
at::Tensor filled_if_deterministic(at::Tensor tensor);

} // namespace torch_backend
