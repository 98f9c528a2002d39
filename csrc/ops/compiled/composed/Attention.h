// Scaled dot product attention and its gradients as kernels that keep no scores, for devices that compile kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace torch_backend::compiled::attention {

/// Whether the device has them: it takes modules, and ATen's kernels do not reach its memory. Starts the driver.
bool is_offered();

/// Whether they are for this input, which may be of tracing: sizes and dtypes are looked at alone.
bool takes(const sdp::sdp_params& params);

/// One call; `takes` holds for its tensors, of any strides. `bias` is undefined, or is added to the scores; of bool it
/// says which of them stay. It may be broadcast.
struct Call {
  at::Tensor query, key, value, bias;
  bool is_causal;
  double scale;
  double dropout_p;
};
/// What dropped weights depend on: numbers of the device's generator that the forward pass has drawn, undefined without
/// a dropout.
struct Drawn {
  at::Tensor seed, offset; // int64, on the device
};
bool takes(const Call& call);

/// For a dropout. Fails a capture.
Drawn draw(const at::Tensor& like);

/// Writes the result, and the logarithm of each row's sum into [batch, heads, rows] in float32, whose rows lie side by
/// side.
void forward(const Call& call, const Drawn& drawn, const at::Tensor& out, const at::Tensor& logarithms);

/// Writes the gradients, of any strides. Always adds up in the same order.
void backward(const Call& call, const Drawn& drawn, const at::Tensor& grad_out, const at::Tensor& out,
              const at::Tensor& logarithms, const at::Tensor& grad_query, const at::Tensor& grad_key,
              const at::Tensor& grad_value);

} // namespace torch_backend::compiled::attention
