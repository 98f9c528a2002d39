// PyTorch's operator for attention that keeps no scores, which a device library may have a kernel for.
#pragma once

#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace torch_backend {

class Registrar;

/// Note [Attention of the device library]
/// A library has attention if it lists aten::_scaled_dot_product_efficient_attention and its backward: of PyTorch's fused
/// operators the pair that takes and returns tensors alone, with a derivative, a batching rule and meta kernels. Theirs is
/// the shape of what is kept for the backward pass: natural logarithms of each row's sum, in float32, in rows that are
/// padded to a multiple of 32. A call that the kernel refuses is a kernel that the device compiles, or other operators. Without a dropout: PyTorch
/// gives these operators no generator.
void register_efficient_attention(Registrar& m);

/// Whether the library has it, or an extension that came before the device was activated.
bool offers_efficient_attention();

/// Whether its attention is for this input, which may be of tracing: sizes, strides and dtypes are looked at alone. Also
/// torch.nn.attention.sdpa_kernel.
bool efficient_attention_takes(const sdp::sdp_params& params);

} // namespace torch_backend
