#include "csrc/ops/native/EfficientAttention.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "csrc/ops/compiled/composed/Attention.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/kernel/KernelTable.h"
#include "csrc/ops/tensor/Widened.h"

namespace torch_backend {
namespace {

// Set before the first call.
bool is_offered = false;
const Kernel* offered_kernel = nullptr; // none if it is an extension's

// The heads that each of the queries' shares with others, as many as they are.
at::Tensor with_heads_of(const at::Tensor& query, const at::Tensor& shared) {
  const auto heads = query.size(1), of_shared = shared.size(1);
  return heads == of_shared ? shared : shared.repeat_interleave(heads / of_shared, /*dim=*/1);
}

at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& bias, bool is_causal,
                     double scale) {
  at::Tensor scores = at::matmul(widened(query).mul(scale), widened(with_heads_of(query, key)).transpose(-2, -1));
  if (bias.defined()) {
    scores.add_(bias);
  }
  if (is_causal) {
    const at::Tensor later = at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool)).triu_(1);
    scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
  }
  return scores;
}

double scale_or_default(std::optional<double> scale, const at::Tensor& query) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// In the dtype of `like`, each place's heads beside each other, as PyTorch's meta kernels promise.
at::Tensor by_places(const at::Tensor& result, const at::Tensor& like) {
  return result.to(like.scalar_type()).transpose(1, 2).contiguous().transpose(1, 2);
}

at::Tensor empty_by_places(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, like.options()).transpose(1, 2);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& attn_bias,
    bool compute_log_sumexp, double dropout_p, bool is_causal, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout_p == 0, "_scaled_dot_product_efficient_attention has no dropout on ",
                              query.device(), "; scaled_dot_product_attention has.");
  const at::Tensor bias = attn_bias.value_or(at::Tensor());
  const double factor = scale_or_default(scale, query);
  constexpr int64_t kMultiple = 32;
  const int64_t rows = query.size(2), padded = (rows + kMultiple - 1) / kMultiple * kMultiple;
  const at::Tensor philox = at::empty({}, query.options().dtype(at::kLong));
  if (const compiled::attention::Call call{query, key, value, bias, is_causal, factor, 0};
      compiled::attention::takes(call)) {
    const at::Tensor output = empty_by_places({query.size(0), query.size(1), rows, value.size(3)}, query);
    const at::Tensor log_sumexp = at::zeros({query.size(0), query.size(1), padded}, query.options().dtype(at::kFloat));
    compiled::attention::forward(call, {}, output, log_sumexp);
    return {output, compute_log_sumexp ? log_sumexp : log_sumexp.narrow(2, 0, 0), philox, philox.clone()};
  }
  const at::Tensor scores = scores_of(query, key, bias, is_causal, factor);
  const at::Tensor output = at::matmul(at::_safe_softmax(scores, -1), widened(with_heads_of(query, value)));
  const at::Tensor log_sumexp = compute_log_sumexp
                                    ? at::constant_pad_nd(at::logsumexp(scores, -1).to(at::kFloat), {0, padded - rows})
                                    : at::empty({query.size(0), query.size(1), 0}, query.options().dtype(at::kFloat));
  return {by_places(output, query), log_sumexp, philox, philox.clone()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& attn_bias, const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& /*philox_seed*/,
    const at::Tensor& /*philox_offset*/, double /*dropout_p*/, std::array<bool, 4> grad_input_mask, bool is_causal,
    std::optional<double> scale) {
  const double factor = scale_or_default(scale, query);
  const bool has_grad_bias = attn_bias.defined() && grad_input_mask[3];
  if (const compiled::attention::Call call{query, key, value, attn_bias, is_causal, factor, 0};
      !has_grad_bias && compiled::attention::takes(call)) {
    const at::Tensor gradients[] = {empty_by_places(query.sizes(), query), empty_by_places(key.sizes(), key),
                                    empty_by_places(value.sizes(), value)};
    compiled::attention::backward(call, {}, grad_out, out, logsumexp, gradients[0], gradients[1], gradients[2]);
    return {gradients[0], gradients[1], gradients[2], at::Tensor()};
  }
  const at::Tensor weights = at::_safe_softmax(scores_of(query, key, attn_bias, is_causal, factor), -1);
  const at::Tensor grad = widened(grad_out);
  const at::Tensor grad_weights = at::matmul(grad, widened(value).transpose(-2, -1));
  const at::Tensor grad_scores = at::_softmax_backward_data(grad_weights, weights, -1, weights.scalar_type());
  at::Tensor grad_bias;
  if (has_grad_bias) {
    constexpr int64_t kMultiple = 16; // of PyTorch's meta kernel
    const int64_t places = attn_bias.size(-1), padded = (places + kMultiple - 1) / kMultiple * kMultiple;
    grad_bias = at::constant_pad_nd(at::sum_to(grad_scores, attn_bias.sizes()).to(attn_bias.scalar_type()),
                                    {0, padded - places})
                    .narrow(-1, 0, places);
  }
  return {by_places(at::matmul(grad_scores, widened(key)).mul_(factor), query),
          by_places(at::matmul(grad_scores.transpose(-2, -1), widened(query)).mul_(factor), key),
          by_places(at::matmul(weights.transpose(-2, -1), grad), value), grad_bias};
}

} // namespace

void register_efficient_attention(Registrar& m) {
  is_offered = m.is_taken("_scaled_dot_product_efficient_attention") &&
               m.is_taken("_scaled_dot_product_efficient_attention_backward");
  offered_kernel = is_offered ? find_kernel("aten::_scaled_dot_product_efficient_attention") : nullptr;
  m.impl("_scaled_dot_product_efficient_attention", TORCH_FN(efficient_attention));
  m.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficient_attention_backward));
}

bool offers_efficient_attention() {
  return is_offered;
}

bool efficient_attention_takes(const sdp::sdp_params& params) {
  constexpr bool (*constraints[])(const sdp::sdp_params&, bool) = {
      sdp::check_nested_tensor,
      sdp::check_for_dropout,
      sdp::check_tensor_shapes,
      sdp::check_attn_mask_shape,
      sdp::check_nonzero_sequence_lengths_dense,
  };
  // PyTorch's meta kernel of the backward pass takes as many heads of keys as of queries.
  const bool is_trained = c10::GradMode::is_enabled() && sdp::input_requires_grad(params);
  const auto has_its_heads = is_trained ? sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/false>
                                        : sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>;
  return is_offered && at::globalContext().userEnabledMemEfficientSDP() &&
         std::all_of(std::begin(constraints), std::end(constraints),
                     [&](auto constraint) { return constraint(params, /*debug=*/false); }) &&
         has_its_heads(params, /*debug=*/false) &&
         (!offered_kernel || offered_kernel->accepts(params.query.scalar_type(), params.query.device().index()));
}

} // namespace torch_backend
