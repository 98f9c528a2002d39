// Scaled dot product attention: the device library's kernel, ATen's fused CPU kernel or one that the device compiles where one
// takes the input, else PyTorch's math path.

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "csrc/ops/compiled/composed/Attention.h"
#include "csrc/ops/compiled/engine/AheadImages.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/ops/native/ComposedAttention.h"
#include "csrc/ops/native/Copy.h"
#include "csrc/ops/native/EfficientAttention.h"
#include "csrc/ops/native/Register.h"
#include "csrc/ops/tensor/Empty.h"

namespace torch_backend {
namespace {

// Whether ATen's fused CPU kernel takes the input. ATen's own answer also depends on settings of the process for the CPU,
// which are none of the device's. In double precision it does, but PyTorch promises what it saves for the backward pass in
// single precision.
bool fused_kernel_takes(const sdp::sdp_params& params) {
  constexpr std::array<c10::ScalarType, 3> dtypes{c10::kFloat, c10::kBFloat16, c10::kHalf};
  constexpr bool (*constraints[])(const sdp::sdp_params&, bool) = {
      sdp::check_nested_tensor,
      sdp::check_for_dropout,
      sdp::check_tensor_shapes,
      sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>,
      sdp::check_attn_mask_shape,
      sdp::check_nonzero_sequence_lengths_dense,
      sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/false>,
  };
  return std::all_of(std::begin(constraints), std::end(constraints),
                     [&](auto constraint) { return constraint(params, /*debug=*/false); }) &&
         params.query.sym_size(-1) == params.key.sym_size(-1) &&
         params.query.sym_size(-1) == params.value.sym_size(-1) &&
         sdp::check_tensor_dtype(params, dtypes, /*debug=*/false);
}

// Whether the user lets ATen's kernel or the compiled one run: as "overrideable", which is what PyTorch calls those of other
// devices, or as "flash", which it is on the CPU. torch.nn.attention.sdpa_kernel switches both.
bool overrideable_is_enabled() {
  const at::Context& context = at::globalContext();
  return context.userEnabledFlashSDP() || context.userEnabledOverrideableSDP();
}

bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& attn_mask, double dropout_p, bool is_causal,
                         std::optional<double> /*scale*/, bool enable_gqa) {
  // Sizes, strides and dtypes are looked at alone, so the tensors may be those of tracing, which have no memory.
  const sdp::sdp_params params{query, key, value, attn_mask, dropout_p, is_causal, enable_gqa};
  const at::Tensor mask = attn_mask.value_or(at::Tensor());
  const bool prefers_math =
      at::globalContext().userEnabledMathSDP() && at::globalContext().sDPPriorityOrder()[0] == at::SDPBackend::math;
  // No fused operator has a forward derivative.
  if (!prefers_math && !has_tangent(query) && !has_tangent(key) && !has_tangent(value) && !has_tangent(mask)) {
    if (efficient_attention_takes(params)) {
      return static_cast<int64_t>(at::SDPBackend::efficient_attention);
    }
    // Neither ATen's kernel nor the compiled one has a gradient for the mask.
    const bool mask_has_gradient = mask.defined() && mask.requires_grad() && c10::GradMode::is_enabled();
    if (!mask_has_gradient && overrideable_is_enabled() &&
        (runs_on_aliased_memory() ? fused_kernel_takes(params) : compiled::attention::takes(params))) {
      return static_cast<int64_t>(at::SDPBackend::overrideable);
    }
  }
  const bool has_overrideable = runs_on_aliased_memory() || compiled::attention::is_offered();
  TORCH_CHECK(at::globalContext().userEnabledMathSDP(),
              "No enabled backend of scaled_dot_product_attention can run this on ", query.device(),
              ". Besides MATH there is ", offers_efficient_attention() ? "EFFICIENT_ATTENTION" : "",
              offers_efficient_attention() && has_overrideable ? " and " : "", has_overrideable ? "OVERRIDEABLE" : "",
              offers_efficient_attention() || has_overrideable ? "" : "none",
              "; enable MATH with torch.nn.attention.sdpa_kernel.");
  return static_cast<int64_t>(at::SDPBackend::math);
}

// The strides that PyTorch promises for a result that belongs to `like`: what is compiled or exported relies on them. The
// CPU's kernel has its own; for most models they are the same.
std::vector<int64_t> promised_strides(const at::Tensor& like, at::IntArrayRef sizes) {
  if (like.sizes() == sizes) {
    return like.is_non_overlapping_and_dense() ? like.strides().vec() : at::infer_dense_strides(sizes, like.strides());
  }
  std::vector<int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t left, int64_t right) { return like.stride(left) > like.stride(right); });
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= std::max<int64_t>(sizes[*dim], 1);
  }
  return strides;
}

at::Tensor with_strides(const at::Tensor& result, at::IntArrayRef strides) {
  if (result.strides() == strides) {
    return result;
  }
  at::Tensor other = empty_on_device(result.device().index(), result.sizes(), strides, result.scalar_type());
  copy_tensor(other, result, /*non_blocking=*/false);
  return other;
}

at::Tensor with_promised_strides(const at::Tensor& result, const at::Tensor& like) {
  return result.defined() ? with_strides(result, promised_strides(like, result.sizes())) : result;
}

// An argument of other devices' kernels: of the shape that PyTorch promises.
at::Tensor number_like(const at::Tensor& query) {
  return empty_on_device(query.device().index(), {}, {}, c10::kLong);
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                           at::Tensor, at::Tensor>;

Forward attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const std::optional<at::Tensor>& attn_bias, double dropout_p, bool is_causal,
                  bool /*return_debug_mask*/, std::optional<double> scale) {
  auto [output, logsumexp] = AtenKernel<at::_ops::_scaled_dot_product_flash_attention_for_cpu>::call(
      query, key, value, dropout_p, is_causal, attn_bias, scale);
  const at::Tensor none;
  return {with_promised_strides(output, query),
          with_strides(logsumexp, c10::contiguous_strides(logsumexp.sizes())),
          none,
          none,
          query.sym_size(2),
          key.sym_size(2),
          number_like(query),
          number_like(query),
          none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& attn_bias, std::array<bool, 4> /*grad_input_mask*/, const at::Tensor& out,
    const at::Tensor& logsumexp, const at::Tensor& /*cum_seq_q*/, const at::Tensor& /*cum_seq_k*/,
    c10::SymInt /*max_q*/, c10::SymInt /*max_k*/, double dropout_p, bool is_causal, const at::Tensor& /*philox_seed*/,
    const at::Tensor& /*philox_offset*/, std::optional<double> scale) {
  const auto mask = attn_bias.defined() ? std::optional<at::Tensor>(attn_bias) : std::nullopt;
  auto [grad_query, grad_key, grad_value] =
      AtenKernel<at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward>::call(
          grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, mask, scale);
  return {with_promised_strides(grad_query, query), with_promised_strides(grad_key, key),
          with_promised_strides(grad_value, value), at::Tensor()};
}

// ---- compiled ----

compiled::attention::Call checked(const compiled::attention::Call& call) {
  TORCH_CHECK_NOT_IMPLEMENTED(compiled::attention::takes(call),
                              "The attention that devices compile is of float16, bfloat16 or float32 and four "
                              "dimensions (batch, heads, places, at most 256 elements), and got a query ",
                              call.query.scalar_type(), call.query.sizes(), ", a key ", call.key.scalar_type(),
                              call.key.sizes(), " and a value ", call.value.scalar_type(), call.value.sizes(),
                              "; scaled_dot_product_attention takes others.");
  return call;
}

double scale_of(std::optional<double> scale, const at::Tensor& query) {
  return sdp::calculate_scale(query, scale).expect_float();
}

Forward compiled_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& attn_bias, double dropout_p, bool is_causal,
                           bool /*return_debug_mask*/, std::optional<double> scale) {
  const auto call =
      checked({query, key, value, attn_bias.value_or(at::Tensor()), is_causal, scale_of(scale, query), dropout_p});
  std::vector<int64_t> sizes = query.sizes().vec();
  sizes[3] = value.size(3);
  const at::Tensor output = at::empty_strided(sizes, promised_strides(query, sizes), query.options());
  const at::Tensor logsumexp = at::empty(query.sizes().slice(0, 3), query.options().dtype(at::kFloat));
  const auto drawn = dropout_p > 0 ? compiled::attention::draw(query)
                                   : compiled::attention::Drawn{number_like(query), number_like(query)};
  try {
    compiled::attention::forward(call, drawn, output, logsumexp);
  } catch (const compiled::MissingImage&) {
    composed_attention::forward(call, drawn, output, logsumexp);
  }
  const at::Tensor none;
  return {output, logsumexp, none, none, query.sym_size(2), key.sym_size(2), drawn.seed, drawn.offset, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> compiled_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& attn_bias, std::array<bool, 4> grad_input_mask, const at::Tensor& out,
    const at::Tensor& logsumexp, const at::Tensor& /*cum_seq_q*/, const at::Tensor& /*cum_seq_k*/,
    c10::SymInt /*max_q*/, c10::SymInt /*max_k*/, double dropout_p, bool is_causal, const at::Tensor& philox_seed,
    const at::Tensor& philox_offset, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(!attn_bias.defined() || !grad_input_mask[3],
                              "The attention that devices compile has no gradient for the mask; "
                              "scaled_dot_product_attention has.");
  const auto call = checked({query, key, value, attn_bias, is_causal, scale_of(scale, query), dropout_p});
  const auto gradient = [](const at::Tensor& like) {
    return at::empty_strided(like.sizes(), promised_strides(like, like.sizes()), like.options());
  };
  const at::Tensor grad_query = gradient(query), grad_key = gradient(key), grad_value = gradient(value);
  const compiled::attention::Drawn drawn{philox_seed, philox_offset};
  try {
    compiled::attention::backward(call, drawn, grad_out, out, logsumexp, grad_query, grad_key, grad_value);
  } catch (const compiled::MissingImage&) {
    composed_attention::backward(call, drawn, grad_out, out, logsumexp, grad_query, grad_key, grad_value);
  }
  return {grad_query, grad_key, grad_value, at::Tensor()};
}

// Which of them is not known before a driver has started.
template <auto kCompiled, auto kAten, class Function = decltype(kAten)>
struct Either;

template <auto kCompiled, auto kAten, class Return, class... Args>
struct Either<kCompiled, kAten, Return (*)(Args...)> {
  static Return call(Args... args) {
    return (compiled::attention::is_offered() ? kCompiled : kAten)(std::forward<Args>(args)...);
  }
};
using Attention = Either<compiled_attention, attention>;
using AttentionBackward = Either<compiled_attention_backward, attention_backward>;

} // namespace

void register_attention(Registrar& m) {
  register_efficient_attention(m);
  m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice), Source::kAten);
  const auto source = compiled::has_modules() ? Source::kGenerated : Source::kAten;
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(Attention::call), source);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(AttentionBackward::call), source);
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&fused_sdp_choice);
}

} // namespace torch_backend
