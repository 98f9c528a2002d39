// The dtype that operators made of others compute in.
#pragma once

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>

namespace torch_backend {

/// In the dtype in which PyTorch's kernels compute what is of the tensor's: float32 for halves, else its own.
inline at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(at::toOpMathType(tensor.scalar_type()));
}

} // namespace torch_backend
