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
/// Sequences of different lengths: `query` is [1, heads, rows of all, elements], and `key` and `value` likewise, or, where
/// there are pages, [pages, heads, places of a page, elements]. Numbers are int32, on the device and contiguous. Rows and
/// places that are too many for `rows` and `places` are left out.
struct Sequences {
  at::Tensor first_rows;   // [sequences + 1]
  at::Tensor first_places; // [sequences + 1], undefined where there are pages
  at::Tensor used;         // [sequences]: places of each; may be undefined where there are no pages
  at::Tensor pages;        // [sequences, most pages], undefined without
  int64_t rows, places;    // of one sequence at most
  /// Where the last row and the last place are the same one: a place may be so many after a row, or before it; -1: any.
  int64_t after = -1, before = -1;
};
/// What dropped weights depend on: numbers of the device's generator that the forward pass has drawn, undefined without
/// a dropout.
struct Drawn {
  at::Tensor seed, offset; // int64, on the device
};
bool takes(const Call& call);
/// Of sequences, whose tensors `call` has; not causal, without a bias and dropout, which sequences do not have.
bool takes(const Call& call, const Sequences& sequences);

/// For a dropout. Fails a capture.
Drawn draw(const at::Tensor& like);

/// Writes the result, and the logarithm of each row's sum into [batch, heads, rows] in float32, whose rows lie side by
/// side.
void forward(const Call& call, const Drawn& drawn, const at::Tensor& out, const at::Tensor& logarithms);
/// `logarithms`: [1, heads, rows of all].
void forward_of_sequences(const Call& call, const Sequences& sequences, const at::Tensor& out,
                          const at::Tensor& logarithms);

/// Writes the gradients, of any strides. Always adds up in the same order.
void backward(const Call& call, const Drawn& drawn, const at::Tensor& grad_out, const at::Tensor& out,
              const at::Tensor& logarithms, const at::Tensor& grad_query, const at::Tensor& grad_key,
              const at::Tensor& grad_value);
/// Without pages. Of rows and places that belong to no sequence nothing is written.
void backward_of_sequences(const Call& call, const Sequences& sequences, const at::Tensor& grad_out,
                           const at::Tensor& out, const at::Tensor& logarithms, const at::Tensor& grad_query,
                           const at::Tensor& grad_key, const at::Tensor& grad_value);

} // namespace torch_backend::compiled::attention
