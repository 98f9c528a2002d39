#include "csrc/ops/compiled/composed/Convolution.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/compiled/families/Columns.h"

namespace torch_backend::compiled {
namespace {

/// What columns take at a time: processors have it in a cache.
constexpr int64_t kColumnBytes = int64_t{64} << 20;
constexpr int64_t kColumnBytesInStretches = int64_t{4} << 20;

/// A convolution of images [batch, channels, ...] to outputs [batch, features, ...], neither of them transposed: all
/// others are made of this one's forward and backward passes. Images and outputs have three dimensions; weights are
/// [features, channels / groups, ...].
class Plan {
 public:
  Plan(at::IntArrayRef image_sizes, at::IntArrayRef output_sizes, at::IntArrayRef weight_sizes,
       const ConvolutionNumbers& numbers)
      : batches_(image_sizes[0]), channels_(image_sizes[1]), features_(output_sizes[1]), groups_(numbers.groups) {
    const auto dims = image_sizes.size() - 2;
    windows_ = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
    for (std::size_t d = 0; d < dims; ++d) {
      const auto to = d + 3 - dims;
      windows_.image[to] = image_sizes[d + 2];
      windows_.count[to] = output_sizes[d + 2];
      windows_.kernel[to] = weight_sizes[d + 2];
      windows_.stride[to] = numbers.stride[d];
      windows_.padding[to] = numbers.padding[d];
      windows_.dilation[to] = numbers.dilation[d];
    }
    is_pointwise_ = windows_.kernel_size() == 1;
    for (std::size_t d = 0; d < 3; ++d) {
      is_pointwise_ = is_pointwise_ && windows_.stride[d] == 1 && windows_.padding[d] == 0;
    }
  }

  /// Writes `output`.
  void forward(const at::Tensor& image, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& output) {
    if (is_depthwise()) {
      columns::convolve_channels(image, weight.contiguous(), bias.defined() ? bias.contiguous() : bias, output,
                                 windows_);
      return;
    }
    const auto kernel = weight_matrices(weight);
    const bool by_channels = output.stride(1) == 1 && !output.is_contiguous();
    for_each_chunk(image, [&](int64_t first, int64_t count) {
      const auto from = image.narrow(0, first, count);
      const auto to = output.narrow(0, first, count);
      if (groups_ > 1) {
        store(at::bmm(kernel, grouped_columns(from)), to, features_);
        if (bias.defined()) {
          to.add_(bias.view({features_, 1, 1, 1}));
        }
      } else if (by_channels) {
        auto flat = rows_by_channel(to);
        const auto columns = columns_of(from).transpose(1, 2).reshape({count * num_windows(), rows()});
        const auto matrix = kernel[0].t();
        bias.defined() ? at::addmm_out(flat, bias, columns, matrix) : at::mm_out(flat, columns, matrix);
      } else {
        auto flat = to.view({count, features_, num_windows()});
        const auto matrix = kernel.expand({count, features_, rows()});
        const auto columns = columns_of(from);
        bias.defined() ? at::baddbmm_out(flat, bias.view({1, features_, 1}), matrix, columns)
                       : at::bmm_out(flat, matrix, columns);
      }
    });
  }

  /// Writes `image`, the gradient of what was convolved.
  void image_gradient(const at::Tensor& output, const at::Tensor& weight, const at::Tensor& image) {
    if (is_depthwise() && features_ == channels_ && windows_.stride == std::array<int64_t, 3>{1, 1, 1}) {
      columns::Windows other = windows_;
      std::swap(other.image, other.count);
      for (std::size_t d = 0; d < 3; ++d) {
        other.padding[d] = other.dilation[d] * (other.kernel[d] - 1) - other.padding[d];
      }
      const auto turned = at::flip(weight.flatten(1).contiguous(), {1});
      columns::convolve_channels(output, turned, at::Tensor(), image, other);
      return;
    }
    const auto kernel = weight_matrices(weight).transpose(1, 2);
    const bool by_channels = image.stride(1) == 1 && !image.is_contiguous();
    for_each_chunk(image, [&](int64_t first, int64_t count) {
      const auto from = output.narrow(0, first, count);
      const auto to = image.narrow(0, first, count);
      if (groups_ > 1) {
        const auto columns = at::bmm(kernel, grouped(from, features_));
        if (is_pointwise_) {
          store(columns, to, channels_);
        } else {
          columns::columns_to_image(columns.view({rows() * groups_, count, num_windows()}).transpose(0, 1), to,
                                    windows_);
        }
      } else if (is_pointwise_ && by_channels) {
        auto flat = rows_by_channel(to);
        at::mm_out(flat, from.flatten(2).transpose(1, 2).reshape({count * num_windows(), features_}), kernel[0].t());
      } else {
        const auto matrix = kernel.expand({count, rows(), features_});
        if (is_pointwise_) {
          auto flat = to.view({count, channels_, num_windows()});
          at::bmm_out(flat, matrix, from.flatten(2));
        } else {
          columns::columns_to_image(at::bmm(matrix, from.flatten(2)), to, windows_);
        }
      }
    });
  }

  /// [groups, features / groups, rows]
  at::Tensor weight_gradient(const at::Tensor& output, const at::Tensor& image) {
    at::Tensor result;
    for_each_chunk(image, [&](int64_t first, int64_t count) {
      const auto left = grouped(output.narrow(0, first, count), features_);
      const auto right = grouped_columns(image.narrow(0, first, count)).transpose(1, 2);
      if (!result.defined()) {
        result = groups_ == 1 ? at::mm(left[0], right[0]).unsqueeze(0) : at::bmm(left, right);
      } else if (groups_ == 1) {
        result[0].addmm_(left[0], right[0]);
      } else {
        result.baddbmm_(left, right);
      }
    });
    return result;
  }

 private:
  bool is_depthwise() const {
    return groups_ > 1 && groups_ == channels_;
  }
  int64_t num_windows() const {
    return windows_.num_windows();
  }
  /// Of the columns of one group.
  int64_t rows() const {
    return channels_ / groups_ * windows_.kernel_size();
  }

  template <class Function>
  void for_each_chunk(const at::Tensor& image, const Function& function) const {
    const int64_t most = runs_in_stretches(image.device().index()) ? kColumnBytesInStretches : kColumnBytes;
    const int64_t bytes = rows() * groups_ * num_windows() * static_cast<int64_t>(image.element_size());
    const int64_t count = std::clamp<int64_t>(most / std::max<int64_t>(bytes, 1), 1, batches_);
    for (int64_t first = 0; first < batches_; first += count) {
      function(first, std::min(count, batches_ - first));
    }
  }

  at::Tensor weight_matrices(const at::Tensor& weight) const {
    return weight.reshape({groups_, features_ / groups_, rows()});
  }

  /// [batch, rows * groups, windows]
  at::Tensor columns_of(const at::Tensor& image) const {
    if (is_pointwise_) {
      return image.flatten(2);
    }
    const auto columns = at::empty({rows() * groups_, image.size(0), num_windows()}, image.options()).transpose(0, 1);
    columns::image_to_columns(image, columns, windows_);
    return columns;
  }

  /// [groups, rows, batch * windows]
  at::Tensor grouped_columns(const at::Tensor& image) const {
    return grouped_flat(columns_of(image), rows() * groups_);
  }
  at::Tensor grouped(const at::Tensor& tensor, int64_t channels) const {
    return grouped_flat(tensor.flatten(2), channels);
  }
  at::Tensor grouped_flat(const at::Tensor& tensor, int64_t channels) const {
    return tensor.transpose(0, 1).reshape({groups_, channels / groups_, tensor.size(0) * tensor.size(2)});
  }

  /// What grouped() made, to where it belongs.
  void store(const at::Tensor& grouped, const at::Tensor& to, int64_t channels) const {
    to.copy_(grouped.view({channels, to.size(0), to.size(2), to.size(3), to.size(4)}).transpose(0, 1));
  }

  /// Of a tensor laid out by channels, without a copy: [batch * positions, channels].
  static at::Tensor rows_by_channel(const at::Tensor& tensor) {
    return tensor.permute({0, 2, 3, 4, 1}).view({-1, tensor.size(1)});
  }

  int64_t batches_, channels_, features_, groups_;
  columns::Windows windows_;
  bool is_pointwise_;
};

/// With three dimensions behind the channels.
at::Tensor as_volume(const at::Tensor& tensor) {
  return tensor.dim() == 4 ? tensor.unsqueeze(2) : tensor;
}

std::vector<int64_t> output_sizes(const at::Tensor& input, const at::Tensor& weight,
                                  const ConvolutionNumbers& numbers) {
  std::vector<int64_t> sizes{input.size(0), numbers.transposed ? weight.size(1) * numbers.groups : weight.size(0)};
  for (std::size_t d = 0; d + 2 < static_cast<std::size_t>(input.dim()); ++d) {
    const auto dim = static_cast<int64_t>(d + 2);
    const int64_t reach = numbers.dilation[d] * (weight.size(dim) - 1);
    TORCH_CHECK(!numbers.transposed || numbers.output_padding[d] < std::max(numbers.stride[d], numbers.dilation[d]),
                "output padding must be smaller than either stride or dilation, but got output_padding: ",
                numbers.output_padding, " stride: ", numbers.stride, " dilation: ", numbers.dilation);
    sizes.push_back(numbers.transposed
                        ? (input.size(dim) - 1) * numbers.stride[d] - 2 * numbers.padding[d] + reach +
                              numbers.output_padding[d] + 1
                        : (input.size(dim) + 2 * numbers.padding[d] - reach - 1) / numbers.stride[d] + 1);
  }
  return sizes;
}

} // namespace

bool convolves(const at::Tensor& input) {
  if (!has_modules() || device_api().host_access()) {
    return false;
  }
  const auto type = compute_type(value_type(tb_dtype_or_none(input.scalar_type())));
  return is_common(type) && computes(input.device().index(), type);
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       const ConvolutionNumbers& numbers, c10::MemoryFormat format) {
  check_dtype(weight, input.scalar_type());
  const auto sizes = output_sizes(input, weight, numbers);
  const auto output = at::empty(sizes, input.options().memory_format(format));
  const auto addend = bias.value_or(at::Tensor());
  if (addend.defined()) {
    check_dtype(addend, input.scalar_type());
  }
  if (numbers.transposed) {
    Plan(sizes, input.sizes(), weight.sizes(), numbers).image_gradient(as_volume(input), weight, as_volume(output));
    if (addend.defined()) {
      std::vector<int64_t> shape(static_cast<std::size_t>(input.dim()) - 1, 1);
      shape[0] = -1;
      output.add_(addend.view(shape));
    }
  } else {
    Plan(input.sizes(), sizes, weight.sizes(), numbers).forward(as_volume(input), weight, addend, as_volume(output));
  }
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad_output,
                                                                    const at::Tensor& input, const at::Tensor& weight,
                                                                    const ConvolutionNumbers& numbers,
                                                                    const std::array<bool, 3>& output_mask,
                                                                    c10::MemoryFormat format) {
  check_dtype(grad_output, input.scalar_type());
  check_dtype(weight, input.scalar_type());
  const auto &image = numbers.transposed ? grad_output : input, &output = numbers.transposed ? input : grad_output;
  Plan plan(image.sizes(), output.sizes(), weight.sizes(), numbers);
  at::Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) {
    grad_input = at::empty(input.sizes(), input.options().memory_format(format));
    if (numbers.transposed) {
      plan.forward(as_volume(grad_output), weight, at::Tensor(), as_volume(grad_input));
    } else {
      plan.image_gradient(as_volume(grad_output), weight, as_volume(grad_input));
    }
  }
  if (output_mask[1]) {
    grad_weight = plan.weight_gradient(as_volume(output), as_volume(image)).view(weight.sizes()).contiguous(format);
  }
  if (output_mask[2]) {
    std::vector<int64_t> dims(static_cast<std::size_t>(grad_output.dim()) - 1);
    std::iota(dims.begin() + 1, dims.end(), 2);
    grad_bias = at::sum(grad_output, dims);
  }
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

} // namespace torch_backend::compiled
