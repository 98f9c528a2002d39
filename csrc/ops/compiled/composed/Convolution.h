// Convolutions over the device's matrix products.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

namespace torch_backend::compiled {

/// The numbers of a convolution of 2 or 3 dimensions.
struct ConvolutionNumbers {
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  at::IntArrayRef output_padding;
  int64_t groups;
};

/// Whether these are to be called for the tensor: the host has no access to its memory, and the device takes modules.
bool convolves(const at::Tensor& input);

/// Laid out as `format` says.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       const ConvolutionNumbers& numbers, c10::MemoryFormat format);

/// Gradients of input, weight and bias; those that `output_mask` leaves out are undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad_output,
                                                                    const at::Tensor& input, const at::Tensor& weight,
                                                                    const ConvolutionNumbers& numbers,
                                                                    const std::array<bool, 3>& output_mask,
                                                                    c10::MemoryFormat format);

} // namespace torch_backend::compiled
