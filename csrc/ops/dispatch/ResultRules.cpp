#include "csrc/ops/dispatch/ResultRules.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>

#include "csrc/ops/dispatch/OperatorFacts.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

/// The kernels compare the dtypes, and say so if they differ.
bool same_dtypes(const at::Tensor& input, const at::Tensor& weight) {
  return input.scalar_type() == weight.scalar_type();
}

/// One entry of a list that may give one value for all dimensions.
int64_t at_dimension(const std::vector<int64_t>& values, std::size_t dimension) {
  return values.size() == 1 ? values[0] : values.at(dimension);
}

/// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups), formulas as documented for
/// torch.nn.ConvNd and torch.nn.ConvTransposeNd.
std::optional<Stack> convolution(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const bool has_bias = arguments[2].isTensor() && arguments[2].toTensor().defined();
  if (!same_dtypes(input, weight) || (has_bias && !same_dtypes(input, arguments[2].toTensor()))) {
    return std::nullopt;
  }
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
  return Stack{at::Tensor(at::detail::empty_meta(sizes, input.scalar_type(), convolution_format(input, weight)))};
}

/// The arguments of convolution_backward, in which bias_sizes are the fourth, from number `first` = 4 on, or of its
/// overrideable form, which lacks them: (grad_output, input, weight, stride, padding, dilation, transposed,
/// output_padding, groups, output_mask).
template <std::size_t first>
std::optional<Stack> convolution_backward(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor& weight = arguments[2].toTensor();
  if (!same_dtypes(input, weight) || !same_dtypes(input, arguments[0].toTensor())) {
    return std::nullopt;
  }
  const auto mask = arguments[first + 6].toBoolList();
  const int64_t channels =
      arguments[first + 3].toBool() ? weight.size(1) * arguments[first + 5].toInt() : weight.size(0);
  const auto format = convolution_format(input, weight);
  const auto wanted = [&](std::size_t index, at::IntArrayRef sizes) {
    const auto its_format = sizes.size() > 1 ? format : c10::MemoryFormat::Contiguous;
    return mask.get(index) ? at::Tensor(at::detail::empty_meta(sizes, input.scalar_type(), its_format)) : at::Tensor();
  };
  return Stack{wanted(0, input.sizes()), wanted(1, weight.sizes()), wanted(2, {channels})};
}

/// (self, dim)
std::optional<Stack> like_self(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return Stack{at::Tensor(at::detail::empty_meta(self.sizes(), self.scalar_type()))};
}

/// (self, output_size): the mean over the last dimensions.
std::optional<Stack> adaptive_mean(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto wanted = arguments[1].toIntVector();
  const auto kept = self.dim() - static_cast<int64_t>(wanted.size());
  if (kept < 1 || kept > 2 || std::any_of(wanted.begin(), wanted.end(), [](int64_t size) { return size < 0; })) {
    return std::nullopt;
  }
  auto sizes = self.sizes().vec();
  const auto pooled = sizes.begin() + static_cast<std::ptrdiff_t>(kept);
  if (std::find(pooled, sizes.end(), 0) != sizes.end()) {
    return std::nullopt;
  }
  std::copy(wanted.begin(), wanted.end(), pooled);
  const auto format = wanted.size() == 2 ? self.suggest_memory_format() : c10::MemoryFormat::Contiguous;
  return Stack{at::Tensor(at::detail::empty_meta(sizes, self.scalar_type(), format))};
}

/// (mean, std, generator), of which some are tensors.
std::optional<Stack> normal(c10::ArrayRef<c10::IValue> arguments) {
  at::DimVector sizes;
  c10::ScalarType type = c10::ScalarType::Undefined;
  for (const auto& argument : {arguments[1], arguments[0]}) {
    if (argument.isTensor()) {
      const auto& tensor = argument.toTensor();
      sizes = at::infer_size_dimvector(tensor.sizes(), sizes);
      type = tensor.scalar_type();
    }
  }
  return Stack{at::Tensor(at::detail::empty_meta(sizes, type))};
}

/// (count, prob, generator): each number from its own pair.
std::optional<Stack> binomial(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& count = arguments[0].toTensor();
  const at::Tensor& probability = arguments[1].toTensor();
  const bool are_pairs = same_dtypes(count, probability) && count.sizes() == probability.sizes();
  return are_pairs ? like_self(arguments) : std::nullopt;
}

/// (self, dim)
std::optional<Stack> along_dim(c10::ArrayRef<c10::IValue> arguments) {
  at::maybe_wrap_dim(arguments[1].toInt(), arguments[0].toTensor().dim()); // raises
  return like_self(arguments);
}

/// (element, test_elements, assume_unique, invert)
std::optional<Stack> one_answer(c10::ArrayRef<c10::IValue> arguments) {
  return Stack{at::Tensor(at::detail::empty_meta({}, c10::ScalarType::Bool))};
}

bool are_multiplied(const at::Tensor& left, const at::Tensor& right) {
  return left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(0);
}

/// (self, mat2) of 8-bit integers
std::optional<Stack> integer_product(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& left = arguments[0].toTensor();
  const at::Tensor& right = arguments[1].toTensor();
  const auto are_bytes = left.scalar_type() == c10::kChar && right.scalar_type() == c10::kChar;
  if (!are_bytes || !are_multiplied(left, right)) {
    return std::nullopt;
  }
  return Stack{at::Tensor(at::detail::empty_meta({left.size(0), right.size(1)}, c10::kInt))};
}

/// (self, mat2, scales): a row of 8-bit integers, and a scale, for each column of the result
std::optional<Stack> scaled_product(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const at::Tensor& scales = arguments[2].toTensor();
  const bool is_taken = self.scalar_type() == c10::kFloat || c10::isReducedFloatingType(self.scalar_type());
  if (!is_taken || weight.scalar_type() != c10::kChar || !same_dtypes(self, scales) || weight.dim() != 2 ||
      !are_multiplied(self, weight.t()) || scales.dim() != 1 || scales.size(0) != weight.size(0) ||
      self.stride(1) != 1 || !weight.is_contiguous()) {
    return std::nullopt;
  }
  return Stack{at::Tensor(at::detail::empty_meta({self.size(0), weight.size(0)}, self.scalar_type()))};
}

/// (start, end, step): of the dtype that they have, since an output of another one is not among the arguments.
std::optional<Stack> range(c10::ArrayRef<c10::IValue> arguments) {
  return Stack{at::arange(arguments[0].toScalar(), arguments[1].toScalar(), arguments[2].toScalar(),
                          at::TensorOptions().device(c10::kMeta))};
}

} // namespace

c10::MemoryFormat convolution_format(const at::Tensor& input, const at::Tensor& weight) {
  const auto format = input.dim() == 4 ? c10::MemoryFormat::ChannelsLast : c10::MemoryFormat::ChannelsLast3d;
  const bool by_channels = input.suggest_memory_format() == format || weight.suggest_memory_format() == format;
  return by_channels ? format : c10::MemoryFormat::Contiguous;
}

ResultRule find_result_rule(const std::string& overload) {
  constexpr std::pair<Fact, ResultRule> kRules[] = {
      {Fact::kConvolutionResult, convolution},
      {Fact::kConvolutionBackwardResult, convolution_backward<4>},
      {Fact::kConvolutionBackwardOverrideableResult, convolution_backward<3>},
      {Fact::kAdaptiveMeanResult, adaptive_mean},
      {Fact::kNormalResult, normal},
      {Fact::kAlongDimResult, along_dim},
      {Fact::kBinomialResult, binomial},
      {Fact::kOneAnswerResult, one_answer},
      {Fact::kIntegerProductResult, integer_product},
      {Fact::kScaledProductResult, scaled_product},
  };
  const auto* rule =
      std::find_if(std::begin(kRules), std::end(kRules), [&](auto& each) { return has_fact(each.first, overload); });
  return rule != std::end(kRules) ? rule->second : nullptr;
}

ResultRule find_input_rule(const std::string& overload) {
  return has_fact(Fact::kRangeResult, overload) ? range : find_result_rule(overload);
}

} // namespace torch_backend
