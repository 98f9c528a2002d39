// Operators that PyTorch has kernels for, and no composite, made of others: where the host cannot reach the memory.

#include "csrc/ops/generated/Compositions.h"

#include <cmath>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/_masked_softmax_backward_ops.h>
#include <ATen/ops/_masked_softmax_ops.h>
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_native_multi_head_attention_ops.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/_transform_bias_rescale_qkv_ops.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_ops.h>
#include <ATen/ops/addbmm_ops.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/addr_ops.h>
#include <ATen/ops/channel_shuffle_ops.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/max_unpool2d_ops.h>
#include <ATen/ops/max_unpool3d_ops.h>
#include <ATen/ops/native_channel_shuffle_native.h>
#include <ATen/ops/native_channel_shuffle_ops.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_shuffle_ops.h>
#include <ATen/ops/pixel_unshuffle_native.h>
#include <ATen/ops/pixel_unshuffle_ops.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/generated/Modules.h"
#include "csrc/ops/host/AtenKernel.h"

namespace torch_backend::generated {
namespace {

/// `Op`, a struct of at::_ops, as `kFormula` where the host has no access; ATen's kernel elsewhere.
template <class Op, auto kFormula, class Schema = typename Op::schema>
struct Composition;

template <class Op, auto kFormula, class Return, class... Args>
struct Composition<Op, kFormula, Return(Args...)> {
  static Return call(Args... args) {
    if (device_api().host_access()) {
      return AtenKernel<Op>::call(std::forward<Args>(args)...);
    }
    return kFormula(std::forward<Args>(args)...);
  }
};

// ---- matrix products ----

/// One product, over the batches too.
at::Tensor product_over_batches(const at::Tensor& self, const at::Tensor& left, const at::Tensor& right,
                                const at::Scalar& beta, const at::Scalar& alpha) {
  TORCH_CHECK(left.dim() == 3 && right.dim() == 3 && left.size(0) == right.size(0) && left.size(2) == right.size(1),
              "addbmm: the batches are of sizes ", left.sizes(), " and ", right.sizes(),
              "; they must have three dimensions, [b, n, m] and [b, m, p]");
  const int64_t depth = left.size(0) * left.size(2);
  return at::addmm(self, left.transpose(0, 1).reshape({left.size(1), depth}), right.reshape({depth, right.size(2)}),
                   beta, alpha);
}

at::Tensor& product_over_batches_(at::Tensor& self, const at::Tensor& left, const at::Tensor& right,
                                  const at::Scalar& beta, const at::Scalar& alpha) {
  return self.copy_(product_over_batches(self, left, right, beta, alpha));
}

at::Tensor& product_over_batches_out(const at::Tensor& self, const at::Tensor& left, const at::Tensor& right,
                                     const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  const auto result = product_over_batches(self, left, right, beta, alpha);
  out.resize_(result.sizes());
  return out.copy_(result);
}

at::Tensor addmm_activation(const at::Tensor& self, const at::Tensor& left, const at::Tensor& right,
                            const at::Scalar& beta, const at::Scalar& alpha, bool use_gelu) {
  auto result = at::addmm(self, left, right, beta, alpha);
  return use_gelu ? at::gelu(result) : at::relu_(result);
}

// ---- attention ----

/// The parts of [batch, time, 3 * width], each [batch, heads, time, width / heads], with the bias; the first one scaled.
std::tuple<at::Tensor, at::Tensor, at::Tensor> split_heads(const at::Tensor& qkv, const at::Tensor& bias,
                                                           int64_t num_heads) {
  const int64_t width = bias.size(0) / 3;
  TORCH_CHECK(width % num_heads == 0, "_transform_bias_rescale_qkv: ", width, " features for ", num_heads, " heads");
  const auto parts = (qkv + bias)
                         .view({qkv.size(0), qkv.size(1), 3, num_heads, width / num_heads})
                         .permute({2, 0, 3, 1, 4})
                         .contiguous();
  return {parts[0].mul_(1.0 / std::sqrt(static_cast<double>(width / num_heads))), parts[1], parts[2]};
}

/// As wide as the scores [batch, heads, time, time]: 0 a mask of times, 1 of the batch's times, else the scores' own.
at::Tensor expanded_mask(const at::Tensor& mask, const at::Tensor& scores, std::optional<int64_t> type) {
  if (type == 0 && mask.dim() == 2) {
    return mask.view({1, 1, mask.size(0), mask.size(1)}).expand(scores.sizes());
  }
  if (type == 1 && mask.dim() == 2) {
    return mask.view({mask.size(0), 1, 1, mask.size(1)}).expand(scores.sizes());
  }
  return mask.expand(scores.sizes());
}

at::Tensor masked_softmax(const at::Tensor& scores, const at::Tensor& mask, std::optional<int64_t> dim,
                          std::optional<int64_t> type) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "_masked_softmax: the mask is ", mask.scalar_type(),
              "; it must be of bool");
  const auto hidden = expanded_mask(mask, scores, type);
  const auto left = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::_softmax(left, dim.value_or(scores.dim() - 1), /*half_to_float=*/false);
}

at::Tensor masked_softmax_backward(const at::Tensor& grad, const at::Tensor& output, const at::Tensor& mask,
                                   std::optional<int64_t> dim) {
  const auto result = at::_softmax_backward_data(grad, output, dim.value_or(output.dim() - 1), output.scalar_type());
  return result.masked_fill(mask.expand(output.sizes()), 0);
}

// ---- images ----

at::Tensor pixel_shuffle(const at::Tensor& self, int64_t factor) {
  return at::native::math_pixel_shuffle(self, factor).contiguous(self.suggest_memory_format());
}

at::Tensor pixel_unshuffle(const at::Tensor& self, int64_t factor) {
  return at::native::math_pixel_unshuffle(self, factor).contiguous(self.suggest_memory_format());
}

at::Tensor channel_shuffle(const at::Tensor& self, c10::SymInt groups) {
  return at::native::math_channel_shuffle(self, groups.guard_int(__FILE__, __LINE__))
      .contiguous(self.suggest_memory_format());
}

at::Tensor max_unpool(const at::Tensor& self, const at::Tensor& indices, c10::SymIntArrayRef output_size) {
  const auto dims = static_cast<int64_t>(output_size.size());
  TORCH_CHECK(self.sizes() == indices.sizes() && (self.dim() == dims + 1 || self.dim() == dims + 2),
              "max_unpool: the tensor is of sizes ", self.sizes(), " and the indices of ", indices.sizes(),
              "; they must be the same, with ", dims + 1, " or ", dims + 2, " dimensions");
  auto sizes = self.sizes().vec();
  const auto wanted = C10_AS_INTARRAYREF_SLOW(output_size);
  std::copy(wanted.begin(), wanted.end(), sizes.end() - dims);
  auto result = at::zeros(sizes, self.options());
  result.flatten(-dims).scatter_(-1, indices.flatten(-dims), self.flatten(-dims));
  return result.contiguous(self.suggest_memory_format());
}

at::Tensor max_unpool_volume(const at::Tensor& self, const at::Tensor& indices, c10::SymIntArrayRef output_size,
                             at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/) {
  return max_unpool(self, indices, output_size);
}

} // namespace

void register_compositions(Registrar& m) {
  if (!has_modules()) {
    return;
  }
  namespace ops = at::_ops;
  constexpr auto kSource = Source::kGenerated;
  m.impl("addbmm", TORCH_FN((Composition<ops::addbmm, product_over_batches>::call)), kSource);
  m.impl("addbmm_", TORCH_FN((Composition<ops::addbmm_, product_over_batches_>::call)), kSource);
  m.impl("addbmm.out", TORCH_FN((Composition<ops::addbmm_out, product_over_batches_out>::call)), kSource);
  m.impl("addr", TORCH_FN((Composition<ops::addr, at::native::math_addr>::call)), kSource);
  m.impl("addr.out", TORCH_FN((Composition<ops::addr_out, at::native::math_addr_out>::call)), kSource);
  m.impl("_addmm_activation", TORCH_FN((Composition<ops::_addmm_activation, addmm_activation>::call)), kSource);
  m.impl("_transform_bias_rescale_qkv", TORCH_FN((Composition<ops::_transform_bias_rescale_qkv, split_heads>::call)),
         kSource);
  m.impl("_masked_softmax", TORCH_FN((Composition<ops::_masked_softmax, masked_softmax>::call)), kSource);
  m.impl("_masked_softmax_backward",
         TORCH_FN((Composition<ops::_masked_softmax_backward, masked_softmax_backward>::call)), kSource);
  m.impl("_native_multi_head_attention",
         TORCH_FN((Composition<ops::_native_multi_head_attention, at::native::native_multi_head_attention_cpu>::call)),
         kSource);
  m.impl(
      "_transformer_encoder_layer_fwd",
      TORCH_FN((Composition<ops::_transformer_encoder_layer_fwd, at::native::transformer_encoder_layer_forward>::call)),
      kSource);
  m.impl("pixel_shuffle", TORCH_FN((Composition<ops::pixel_shuffle, pixel_shuffle>::call)), kSource);
  m.impl("pixel_unshuffle", TORCH_FN((Composition<ops::pixel_unshuffle, pixel_unshuffle>::call)), kSource);
  m.impl("channel_shuffle", TORCH_FN((Composition<ops::channel_shuffle, channel_shuffle>::call)), kSource);
  m.impl("native_channel_shuffle", TORCH_FN((Composition<ops::native_channel_shuffle, channel_shuffle>::call)),
         kSource);
  m.impl("max_unpool2d", TORCH_FN((Composition<ops::max_unpool2d, max_unpool>::call)), kSource);
  m.impl("max_unpool3d", TORCH_FN((Composition<ops::max_unpool3d, max_unpool_volume>::call)), kSource);
}

} // namespace torch_backend::generated
