#include "csrc/kernels/ResultRules.h"

#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace torch_backend {
namespace {

using torch::jit::Stack;

at::Tensor contiguous_meta(at::IntArrayRef sizes, c10::ScalarType type) {
  return at::detail::empty_meta(sizes, type);
}

/// One entry of a list that may give one value for all dimensions.
int64_t at_dimension(const std::vector<int64_t>& values, std::size_t dimension) {
  return values.size() == 1 ? values[0] : values.at(dimension);
}

/// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups), formulas as documented for
/// torch.nn.ConvNd and torch.nn.ConvTransposeNd.
Stack convolution(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const auto stride = arguments[3].toIntVector();
  const auto padding = arguments[4].toIntVector();
  const auto dilation = arguments[5].toIntVector();
  const bool transposed = arguments[6].toBool();
  const auto output_padding = arguments[7].toIntVector();
  std::vector<int64_t> sizes{input.size(0), transposed ? weight.size(1) * arguments[8].toInt() : weight.size(0)};
  for (int64_t dim = 2; dim < input.dim(); ++dim) {
    const auto i = static_cast<std::size_t>(dim - 2);
    const int64_t reach = at_dimension(dilation, i) * (weight.size(dim) - 1);
    const int64_t pads = 2 * at_dimension(padding, i);
    sizes.push_back(transposed ? (input.size(dim) - 1) * at_dimension(stride, i) - pads + reach +
                                     at_dimension(output_padding, i) + 1
                               : (input.size(dim) + pads - reach - 1) / at_dimension(stride, i) + 1);
  }
  return {contiguous_meta(sizes, input.scalar_type())};
}

/// (grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask)
Stack convolution_backward(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor& weight = arguments[2].toTensor();
  const auto mask = arguments[9].toBoolList();
  const int64_t channels = arguments[6].toBool() ? weight.size(1) * arguments[8].toInt() : weight.size(0);
  const auto wanted = [&](std::size_t index, at::IntArrayRef sizes) {
    return mask.get(index) ? contiguous_meta(sizes, input.scalar_type()) : at::Tensor();
  };
  return {wanted(0, input.sizes()), wanted(1, weight.sizes()), wanted(2, {channels})};
}

} // namespace

ResultRule find_result_rule(const std::string& overload) {
  if (overload == "aten::convolution_overrideable") {
    return convolution;
  }
  return overload == "aten::convolution_backward_overrideable" ? convolution_backward : nullptr;
}

} // namespace torch_backend
