// The parts of batch normalization that torch.nn.SyncBatchNorm puts together: made of other operators of the device.
// Statistics are over every dimension but 1, with the biased variance (Ioffe and Szegedy, ICML 2015).

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool is_defined(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    if (dim != 1) {
      dims.push_back(dim);
    }
  }
  return dims;
}

/// [C] as [1, C, 1, ...], to broadcast against `input`.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
  sizes[1] = values.numel();
  return values.reshape(sizes);
}

std::tuple<at::Tensor, at::Tensor> stats(const at::Tensor& input, double eps) {
  auto [var, mean] = at::var_mean(input, all_but_channels(input), /*correction=*/0);
  return {mean, at::rsqrt(var + eps)};
}

at::Tensor normalize(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                     const at::Tensor& mean, const at::Tensor& invstd, double /*eps*/) {
  auto result = (input - per_channel(mean, input)) * per_channel(invstd, input);
  if (is_defined(weight)) {
    result = result * per_channel(*weight, input);
  }
  return is_defined(bias) ? result + per_channel(*bias, input) : result;
}

at::Tensor& normalize_out(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                          const at::Tensor& mean, const at::Tensor& invstd, double eps, at::Tensor& out) {
  out.resize_(input.sizes());
  return out.copy_(normalize(input, weight, bias, mean, invstd, eps));
}

/// `mean`, `invstd`: [ranks, C]; `counts`: elements per channel of each rank.
std::tuple<at::Tensor, at::Tensor> gather_stats(const at::Tensor& /*input*/, const at::Tensor& mean,
                                                const at::Tensor& invstd, const OptionalTensor& running_mean,
                                                const OptionalTensor& running_var, double momentum, double eps,
                                                const at::Tensor& counts) {
  const auto weights = counts.to(mean.scalar_type()).reshape({-1, 1});
  const auto total = weights.sum();
  const auto global_mean = (mean * weights).sum(0) / total;
  const auto var = invstd.pow(-2) - eps;
  const auto global_var = ((var + (mean - global_mean).square()) * weights).sum(0) / total;
  if (is_defined(running_mean)) {
    running_mean->mul_(1 - momentum).add_(global_mean.to(running_mean->scalar_type()), momentum);
  }
  if (is_defined(running_var)) {
    const auto unbiased = global_var * (total / (total - 1));
    running_var->mul_(1 - momentum).add_(unbiased.to(running_var->scalar_type()), momentum);
  }
  return {global_mean, at::rsqrt(global_var + eps)};
}

std::tuple<at::Tensor, at::Tensor> gather_stats_equal_counts(const at::Tensor& input, const at::Tensor& mean,
                                                             const at::Tensor& invstd,
                                                             const OptionalTensor& running_mean,
                                                             const OptionalTensor& running_var, double momentum,
                                                             double eps, int64_t count) {
  const auto counts = mean.new_full({mean.size(0)}, count);
  return gather_stats(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

/// Returns (sum_dy, sum_dy_xmu, grad_weight, grad_bias); what is not asked for is undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const OptionalTensor& /*weight*/, bool input_g, bool weight_g, bool bias_g) {
  const auto dims = all_but_channels(input);
  const auto sum_dy = grad_out.sum(dims);
  const auto sum_dy_xmu = (grad_out * (input - per_channel(mean, input))).sum(dims);
  return {input_g ? sum_dy : at::Tensor(), input_g ? sum_dy_xmu : at::Tensor(),
          weight_g ? sum_dy_xmu * invstd : at::Tensor(), bias_g ? sum_dy : at::Tensor()};
}

at::Tensor backward_elemt(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& invstd, const OptionalTensor& weight, const at::Tensor& sum_dy,
                          const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  const auto total = count.sum();
  const auto mean_dy = per_channel(sum_dy / total, input);
  const auto projected = per_channel(sum_dy_xmu / total * invstd.square(), input);
  const auto scale = is_defined(weight) ? invstd * *weight : invstd;
  return (grad_out - mean_dy - (input - per_channel(mean, input)) * projected) * per_channel(scale, input);
}

} // namespace

void register_batch_norm(Registrar& m) {
  m.impl("batch_norm_stats", TORCH_FN(stats));
  m.impl("batch_norm_elemt", TORCH_FN(normalize));
  m.impl("batch_norm_elemt.out", TORCH_FN(normalize_out));
  m.impl("batch_norm_gather_stats", TORCH_FN(gather_stats_equal_counts));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather_stats));
  m.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(backward_elemt));
}

} // namespace torch_backend
