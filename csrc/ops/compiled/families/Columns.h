// Windows of images as columns of matrices (im2col), and back (col2im).
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace torch_backend::compiled::columns {

/// Over depth, height and width.
struct Windows {
  std::array<int64_t, 3> image, count, kernel, stride, padding, dilation;

  int64_t num_windows() const {
    return count[0] * count[1] * count[2];
  }
  int64_t kernel_size() const {
    return kernel[0] * kernel[1] * kernel[2];
  }
};

/// `columns`: [batch, channels * kernel, windows] of any strides but the last one's, which is 1; `image`: [batch, channels,
/// depth, height, width]. On the device's current stream.
void image_to_columns(const at::Tensor& image, const at::Tensor& columns, const Windows& windows);
/// Convolves with one channel of the image for each feature: `output` [batch, features, ...], `weight` [features, 1, ...]
/// contiguous, as `bias`, which may be undefined.
void convolve_channels(const at::Tensor& image, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& output, const Windows& windows);
/// Each element of the image becomes the sum of what the columns have for it.
void columns_to_image(const at::Tensor& columns, const at::Tensor& image, const Windows& windows);

} // namespace torch_backend::compiled::columns
