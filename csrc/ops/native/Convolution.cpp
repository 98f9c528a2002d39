// Convolutions: PyTorch asks an out-of-tree device for its `overrideable` operators, never for a fallback.

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>

#include "csrc/ops/compiled/composed/Convolution.h"
#include "csrc/ops/compiled/engine/AheadImages.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/dispatch/ResultRules.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

/// ATen's kernels have rules of their own in rare cases (volumes of doubles).
at::Tensor laid_out(at::Tensor&& result, c10::MemoryFormat format) {
  return result.defined() ? result.contiguous(format) : std::move(result);
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  if (compiled::convolves(input)) {
    try {
      return compiled::convolution(
          input, weight, bias,
          {C10_AS_INTARRAYREF_SLOW(stride), C10_AS_INTARRAYREF_SLOW(padding), C10_AS_INTARRAYREF_SLOW(dilation),
           transposed, C10_AS_INTARRAYREF_SLOW(output_padding), groups.guard_int(__FILE__, __LINE__)},
          convolution_format(input, weight));
    } catch (const compiled::MissingImage&) { // the CPU does it
    }
  }
  return laid_out(AtenKernel<at::_ops::convolution>::call(input, weight, bias, stride, padding, dilation, transposed,
                                                          output_padding, std::move(groups)),
                  convolution_format(input, weight));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> output_mask) {
  if (compiled::convolves(input)) {
    try {
      return compiled::convolution_backward(
          grad_output, input, weight,
          {C10_AS_INTARRAYREF_SLOW(stride), C10_AS_INTARRAYREF_SLOW(padding), C10_AS_INTARRAYREF_SLOW(dilation),
           transposed, C10_AS_INTARRAYREF_SLOW(output_padding), groups.guard_int(__FILE__, __LINE__)},
          output_mask, convolution_format(input, weight));
    } catch (const compiled::MissingImage&) { // the CPU does it
    }
  }
  const std::array<c10::SymInt, 1> bias_sizes{transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  auto [grad_input, grad_weight, grad_bias] = AtenKernel<at::_ops::convolution_backward>::call(
      grad_output, input, weight, at::OptionalSymIntArrayRef(c10::SymIntArrayRef(bias_sizes)), stride, padding,
      dilation, transposed, output_padding, std::move(groups), output_mask);
  const auto format = convolution_format(input, weight);
  return {laid_out(std::move(grad_input), format), laid_out(std::move(grad_weight), format), std::move(grad_bias)};
}

} // namespace

void register_convolution(Registrar& m) {
  const Source source = compiled::has_modules() ? Source::kGenerated : Source::kAten;
  m.impl("convolution_overrideable", TORCH_FN(convolution), source);
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward), source);
}

} // namespace torch_backend
