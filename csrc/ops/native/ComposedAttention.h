// Attention made of other operators, for devices that compile nothing and have no image of its kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/ops/compiled/composed/Attention.h"

namespace torch_backend::composed_attention {

/// What the functions of compiled::attention do, with the same dropped weights: of a call, one may have done the forward
/// pass and the other the backward pass.
void forward(const compiled::attention::Call& call, const compiled::attention::Drawn& drawn, const at::Tensor& out,
             const at::Tensor& logarithms);
void backward(const compiled::attention::Call& call, const compiled::attention::Drawn& drawn,
              const at::Tensor& grad_out, const at::Tensor& out, const at::Tensor& logarithms,
              const at::Tensor& grad_query, const at::Tensor& grad_key, const at::Tensor& grad_value);

} // namespace torch_backend::composed_attention
