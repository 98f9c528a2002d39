// Convolutions: PyTorch asks an out-of-tree device for its `overrideable` operators, never for a fallback.

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>

#include "csrc/aten/AtenKernel.h"
#include "csrc/aten/Register.h"
#include "csrc/aten/Registrar.h"

namespace torch_backend {
namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> output_mask) {
  const std::array<c10::SymInt, 1> bias_sizes{transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  return AtenKernel<at::_ops::convolution_backward>::call(
      grad_output, input, weight, at::OptionalSymIntArrayRef(c10::SymIntArrayRef(bias_sizes)), stride, padding,
      dilation, transposed, output_padding, std::move(groups), output_mask);
}

} // namespace

void register_convolution(Registrar& m) {
  m.impl("convolution_overrideable", TORCH_FN(AtenKernel<at::_ops::convolution>::call), Source::kAten);
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward), Source::kAten);
}

} // namespace torch_backend
