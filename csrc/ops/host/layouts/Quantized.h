// The memory of quantized tensors as integers.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

/// The integers of a quantized tensor, on the same memory and with the same sizes and strides; for types of less than a
/// byte, its whole storage as bytes.
at::Tensor integers_of(const at::Tensor& quantized);

} // namespace torch_backend
