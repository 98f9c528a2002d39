// Random operators whose CPU kernel draws from the CPU's own generator: made of ones that take the device's.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "csrc/aten/Register.h"
#include "csrc/aten/Registrar.h"

namespace torch_backend {
namespace {

/// Returns (output scaled by 1 / (1 - p), mask of kept elements).
std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, double p, bool train,
                                           const std::optional<at::Generator>& generator, c10::ScalarType mask_type) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (!train || input.numel() == 0) {
    return {input.clone(), at::ones_like(input, input.options().dtype(mask_type))};
  }
  if (p == 1) {
    return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(mask_type))};
  }
  auto mask = at::empty_like(input, input.options().dtype(mask_type));
  mask.bernoulli_(1 - p, generator);
  return {input.mul(mask).mul_(1 / (1 - p)), mask};
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  return dropout(input, p, train.value_or(true), std::nullopt, c10::ScalarType::Bool);
}

std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& self, double p,
                                                 std::optional<at::Generator> generator) {
  // Here `p` is the probability to keep an element.
  return dropout(self, 1 - p, /*train=*/true, generator, c10::ScalarType::Byte);
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  return self.mul(mask).mul_(scale);
}

} // namespace

void register_random(Registrar& m) {
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("_fused_dropout", TORCH_FN(fused_dropout));
  m.impl("_masked_scale", TORCH_FN(masked_scale));
}

} // namespace torch_backend
