// Operators that PyTorch has kernels for, and no composite, made of others: where the host cannot reach the memory.

#include "csrc/ops/compiled/composed/Compositions.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/native_channel_shuffle_native.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>

#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/tensor/Widened.h"

// What operators are about, a file each.
#define TB_FOR_EACH_COMPOSITION(_) \
  _(bags)                          \
  _(counting)                      \
  _(ctc)                           \
  _(distances)                     \
  _(grid)                          \
  _(grouped_products)              \
  _(packed_products)               \
  _(ranges)                        \
  _(scaled_products)               \
  _(solves)                        \
  _(spectral)

namespace torch_backend::compiled {

#define TB_DECLARE(about) \
  namespace about {       \
  void add(Registrar& m); \
  }
TB_FOR_EACH_COMPOSITION(TB_DECLARE)
#undef TB_DECLARE

void check_out_dtype(const at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(out.dtype() == result.dtype(), "Expected out tensor to have dtype ", result.dtype(), ", but got ",
              out.dtype(), " instead");
}

at::Tensor& write_result(at::Tensor& out, const at::Tensor& result) {
  check_out_dtype(out, result);
  return convert_result(out, result);
}

at::Tensor& convert_result(at::Tensor& out, const at::Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

namespace {

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
  return write_result(self, product_over_batches(self, left, right, beta, alpha)); // PyTorch resizes it
}

void check_factor(const char* name, at::ScalarType type, const at::Scalar& factor) {
  TORCH_CHECK(!factor.isBoolean() || type == at::kBool, "Boolean ", name, " only supported for Boolean results.");
  TORCH_CHECK(!at::isIntegralType(type, /*includeBool=*/true) || factor.isIntegral(/*includeBool=*/true),
              "For integral input tensors, argument ", name, " must not be a floating point number.");
}

at::Tensor addr(const at::Tensor& self, const at::Tensor& left, const at::Tensor& right, const at::Scalar& beta,
                const at::Scalar& alpha) {
  const auto type = c10::promoteTypes(c10::promoteTypes(self.scalar_type(), left.scalar_type()), right.scalar_type());
  check_factor("beta", type, beta);
  check_factor("alpha", type, alpha);
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kBool, at::kHalf, at::kBFloat16, type, "addr", [&] {
    beta.to<scalar_t>(); // raises where it does not fit
    alpha.to<scalar_t>();
  });
  if (left.dim() == 1 && right.dim() == 1) {
    at::expand_size(self, {left.size(0), right.size(0)}, "addr"); // raises where the product would be expanded
  }
  if (type == at::kBool) {
    return at::native::math_addr(self, left, right, beta.to<bool>(), alpha.to<bool>());
  }
  // The product of both factors may be too large, and alpha small.
  const auto scaled = alpha.equal(1) ? left.to(type) : left.to(type).mul(alpha);
  return at::native::math_addr(self.to(type), scaled, right.to(type), beta, 1);
}

at::Tensor& addr_out(const at::Tensor& self, const at::Tensor& left, const at::Tensor& right, const at::Scalar& beta,
                     const at::Scalar& alpha, at::Tensor& out) {
  for (const auto& input : {self, left, right}) {
    at::assert_no_partial_overlap(out, input);
  }
  if (out.is_same(self) && left.dim() == 1 && right.dim() == 1) {
    TORCH_CHECK(out.dim() == 2, "2D tensor expected, got ", out.dim(), "D tensor for input");
    TORCH_CHECK(out.size(0) == left.size(0) && out.size(1) == right.size(0), "size mismatch, input: ", out.sizes(),
                ", v1: ", left.sizes(), ", v2: ", right.sizes());
  }
  return at::native::math_addr_out(self, left, right, beta, alpha, out);
}

at::Tensor addmm_activation(const at::Tensor& self, const at::Tensor& left, const at::Tensor& right,
                            const at::Scalar& beta, const at::Scalar& alpha, bool use_gelu) {
  auto result = at::addmm(self, left, right, beta, alpha);
  return use_gelu ? at::gelu(result) : at::relu_(result);
}

// ---- differences ----

at::Tensor reversed_difference(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return at::sub(other, self, alpha);
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
  const auto format = self.suggest_memory_format(); // PyTorch's formula takes views of what is laid out so
  const auto count = groups.guard_int(__FILE__, __LINE__);
  const auto result = at::native::math_channel_shuffle(self.contiguous(format), count).contiguous(format);
  return result.is_alias_of(self) ? result.clone() : result; // where nothing moves
}

at::Tensor max_unpool(const at::Tensor& self, const at::Tensor& indices, c10::SymIntArrayRef output_size) {
  const auto dims = static_cast<int64_t>(output_size.size());
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(self.dim() == dims + 1 || self.dim() == dims + 2, "Input to max_unpooling", dims, "d should be a ",
              dims + 1, "d or ", dims + 2, "d Tensor, but got a tensor with ", self.dim(), " dimensions.");
  TORCH_CHECK(self.sizes() == indices.sizes(), "Expected shape of indices to be same as that of the input tensor (",
              self.sizes(), ") but got indices tensor with shape: ", indices.sizes());
  TORCH_CHECK(std::find(self.sizes().begin() + 1, self.sizes().end(), 0) == self.sizes().end(), "max_unpooling", dims,
              "d: Expected input to have non-zero size for non-batch dimensions, but got ", self.sizes());
  auto sizes = self.sizes().vec();
  const auto wanted = C10_AS_INTARRAYREF_SLOW(output_size);
  std::copy(wanted.begin(), wanted.end(), sizes.end() - dims);
  auto result = at::zeros(sizes, self.options());
  result.flatten(-dims).scatter_(-1, indices.flatten(-dims), self.flatten(-dims));
  return result.contiguous(self.suggest_memory_format());
}

at::Tensor max_unpool_volume(const at::Tensor& self, const at::Tensor& indices, c10::SymIntArrayRef output_size,
                             at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/) {
  return max_unpool(self, indices, output_size).contiguous();
}

// ---- normalization ----

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    const std::optional<at::Tensor>& save_mean, const std::optional<at::Tensor>& save_invstd, bool update, double eps,
    std::array<bool, 3> output_mask, const at::Tensor& /*reserve*/) {
  return at::native_batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean, save_invstd, update,
                                        eps, output_mask);
}

/// Along the first or the last dimension, which the norms keep.
std::tuple<at::Tensor, at::Tensor> weight_norm(const at::Tensor& v, const at::Tensor& g, int64_t dim) {
  const auto wide = widened(v);
  const auto norms = at::norm_except_dim(wide, 2, dim);
  // PyTorch keeps them in float32 for bfloat16 alone.
  return {(wide * (g / norms)).to(v.scalar_type()),
          g.scalar_type() == at::kBFloat16 ? norms : norms.to(g.scalar_type())};
}

std::tuple<at::Tensor, at::Tensor> weight_norm_backward(const at::Tensor& grad_w, const at::Tensor& saved_v,
                                                        const at::Tensor& saved_g, const at::Tensor& saved_norms,
                                                        int64_t /*dim*/) {
  const auto grad = widened(grad_w), v = widened(saved_v), norms = widened(saved_norms);
  const auto along = at::sum_to(grad * v, norms.sizes()) / norms; // the part of the gradient along v
  const auto grad_v = (grad - v * (along / norms)) * (saved_g / norms);
  return {grad_v.to(saved_v.scalar_type()), along.to(saved_g.scalar_type())};
}

// ---- shifts ----

template <class Other>
at::Tensor& shift_left_(at::Tensor& self, const Other& other) {
  return self.bitwise_left_shift_(other);
}

template <class Other>
at::Tensor& shift_right_(at::Tensor& self, const Other& other) {
  return self.bitwise_right_shift_(other);
}

// ---- activations ----

std::tuple<at::Tensor, at::Tensor> halves(const at::Tensor& self, int64_t dim) {
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.size(dim) % 2 == 0, "Halving dimension must be even, but dimension ", dim, " is size ",
              self.size(dim));
  const int64_t half = self.size(dim) / 2;
  return {self.narrow(dim, 0, half), self.narrow(dim, half, half)};
}

at::Tensor glu(const at::Tensor& self, int64_t dim) {
  const auto [value, gate] = halves(self, dim);
  return value * gate.sigmoid();
}

at::Tensor& glu_out(const at::Tensor& self, int64_t dim, at::Tensor& out) {
  const auto [value, gate] = halves(self, dim);
  at::assert_no_partial_overlap(out, gate);
  return at::mul_out(out, value, gate.sigmoid());
}

at::Tensor glu_backward(const at::Tensor& grad, const at::Tensor& self, int64_t dim) {
  const auto [value, gate] = halves(self, dim);
  const auto open = gate.sigmoid();
  return at::cat({grad * open, (1 - open) * open * grad * value}, dim);
}

at::Tensor rrelu(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                 bool training, std::optional<at::Generator> generator) {
  const double low = lower.toDouble(), high = upper.toDouble();
  if (!training) {
    return at::leaky_relu(self, (low + high) / 2);
  }
  TORCH_CHECK(noise.sizes() == self.sizes(), "rrelu_with_noise: noise tensor shape must match self tensor shape, got ",
              noise.sizes(), " and ", self.sizes());
  noise.uniform_(low, high, generator).masked_fill_(self.gt(0), 1);
  return self * noise;
}

at::Tensor& rrelu_(at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
                   std::optional<at::Generator> generator) {
  return self.copy_(rrelu(self, noise, lower, upper, training, std::move(generator)));
}

// ---- places ----

at::Tensor nonzero_static(const at::Tensor& self, c10::SymInt wanted, int64_t fill_value) {
  const auto size = wanted.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  const auto options = self.options().dtype(at::kLong);
  if (self.dim() == 0 || size == 0 || self.numel() == 0) {
    return at::full({size, self.dim()}, fill_value, options);
  }
  const auto found = self.ne(0).flatten();
  // Each goes to its place, and what is too many to the one after the last.
  const auto place = found.cumsum(0).sub_(1).clamp_max_(size).masked_fill_(found.logical_not(), size);
  auto elements = at::full({size + 1}, -1, options).scatter_(0, place, at::arange(self.numel(), options));
  elements = elements.narrow(0, 0, size);
  std::vector<at::Tensor> columns;
  int64_t step = self.numel();
  for (const int64_t each : self.sizes()) {
    step /= each;
    columns.push_back(elements.div(step, "floor").remainder_(each));
  }
  return at::stack(columns, 1).masked_fill_(elements.lt(0).unsqueeze(1), fill_value);
}

} // namespace

void add_compositions(Registrar& m) {
  if (!has_modules()) {
    return;
  }
  TB_COMPOSITION(m, "addbmm", addbmm, product_over_batches);
  TB_COMPOSITION(m, "addbmm_", addbmm_, product_over_batches_);
  TB_COMPOSITION(m, "addbmm.out", addbmm_out, Into<product_over_batches>::call);
  TB_COMPOSITION(m, "addr", addr, addr);
  TB_COMPOSITION(m, "addr.out", addr_out, addr_out);
  TB_COMPOSITION(m, "_addmm_activation", _addmm_activation, addmm_activation);
  TB_COMPOSITION(m, "rsub.Tensor", rsub_Tensor, reversed_difference);
  TB_COMPOSITION(m, "_transform_bias_rescale_qkv", _transform_bias_rescale_qkv, split_heads);
  TB_COMPOSITION(m, "_masked_softmax", _masked_softmax, masked_softmax);
  TB_COMPOSITION(m, "_masked_softmax_backward", _masked_softmax_backward, masked_softmax_backward);
  TB_COMPOSITION(m, "_native_multi_head_attention", _native_multi_head_attention,
                 at::native::native_multi_head_attention_cpu);
  TB_COMPOSITION(m, "_transformer_encoder_layer_fwd", _transformer_encoder_layer_fwd,
                 at::native::transformer_encoder_layer_forward);
  TB_COMPOSITION(m, "pixel_shuffle", pixel_shuffle, pixel_shuffle);
  TB_COMPOSITION(m, "pixel_unshuffle", pixel_unshuffle, pixel_unshuffle);
  TB_COMPOSITION(m, "channel_shuffle", channel_shuffle, channel_shuffle);
  TB_COMPOSITION(m, "native_channel_shuffle", native_channel_shuffle, channel_shuffle);
  TB_COMPOSITION(m, "max_unpool2d", max_unpool2d, max_unpool);
  TB_COMPOSITION(m, "max_unpool3d", max_unpool3d, max_unpool_volume);
  TB_COMPOSITION(m, "batch_norm_backward", batch_norm_backward, batch_norm_backward);
  TB_COMPOSITION(m, "_weight_norm_interface", _weight_norm_interface, weight_norm);
  TB_COMPOSITION(m, "_weight_norm_interface_backward", _weight_norm_interface_backward, weight_norm_backward);
  TB_COMPOSITION(m, "__ilshift__.Tensor", __ilshift___Tensor, shift_left_<at::Tensor>);
  TB_COMPOSITION(m, "__ilshift__.Scalar", __ilshift___Scalar, shift_left_<at::Scalar>);
  TB_COMPOSITION(m, "__irshift__.Tensor", __irshift___Tensor, shift_right_<at::Tensor>);
  TB_COMPOSITION(m, "__irshift__.Scalar", __irshift___Scalar, shift_right_<at::Scalar>);
  TB_COMPOSITION(m, "glu", glu, glu);
  TB_COMPOSITION(m, "glu.out", glu_out, glu_out);
  TB_COMPOSITION(m, "glu_backward", glu_backward, glu_backward);
  TB_COMPOSITION(m, "rrelu_with_noise", rrelu_with_noise, rrelu);
  TB_COMPOSITION(m, "rrelu_with_noise_", rrelu_with_noise_, rrelu_);
  TB_COMPOSITION(m, "nonzero_static", nonzero_static, nonzero_static);
#define TB_ADD(about) about::add(m);
  TB_FOR_EACH_COMPOSITION(TB_ADD)
#undef TB_ADD
}

} // namespace torch_backend::compiled
