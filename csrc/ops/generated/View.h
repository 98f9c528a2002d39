// A kernel's tensor with other sizes and strides.
#pragma once

#include <array>
#include <cstdint>

#include "torch_backend/device.h"

namespace torch_backend::generated {

/// A copy of a tb_tensor that owns its shape. Strides may be anything, also negative.
struct View {
  static constexpr int kMaxDims = 64;

  View() = default;
  explicit View(const tb_tensor& tensor)
      : data(static_cast<char*>(tensor.data) + tensor.byte_offset), dtype(tensor.dtype), ndim(tensor.ndim) {
    for (int d = 0; d < ndim; ++d) {
      sizes[static_cast<std::size_t>(d)] = tensor.shape[d];
      strides[static_cast<std::size_t>(d)] = tensor.strides[d];
    }
  }
  /// Contiguous memory.
  View(void* memory, tb_dtype type, int num_dims, const int64_t* shape)
      : data(static_cast<char*>(memory)), dtype(type), ndim(num_dims) {
    int64_t stride = 1;
    for (int d = num_dims - 1; d >= 0; --d) {
      size(d) = shape[d];
      this->stride(d) = stride;
      stride *= shape[d];
    }
  }

  int64_t& size(int d) {
    return sizes[static_cast<std::size_t>(d)];
  }
  int64_t& stride(int d) {
    return strides[static_cast<std::size_t>(d)];
  }
  int64_t size(int d) const {
    return sizes[static_cast<std::size_t>(d)];
  }
  int64_t stride(int d) const {
    return strides[static_cast<std::size_t>(d)];
  }
  int64_t numel() const {
    int64_t count = 1;
    for (int d = 0; d < ndim; ++d) {
      count *= size(d);
    }
    return count;
  }
  void add_dim(int64_t new_size, int64_t new_stride) {
    size(ndim) = new_size;
    stride(ndim++) = new_stride;
  }
  int element_bytes() const {
    return dtype.bits / 8;
  }
  /// `count` elements of dimension d from `start` on.
  void narrow(int d, int64_t start, int64_t count) {
    data += start * stride(d) * element_bytes();
    size(d) = count;
  }

  /// Valid as long as the view is, and does not change.
  tb_tensor tensor() const {
    return {data, {12, 0}, ndim, dtype, const_cast<int64_t*>(sizes.data()), const_cast<int64_t*>(strides.data()), 0};
  }

  char* data = nullptr;
  tb_dtype dtype{};
  int ndim = 0;
  std::array<int64_t, kMaxDims> sizes;
  std::array<int64_t, kMaxDims> strides;
};

/// What `dim` of an argument means for `ndim` dimensions.
inline int wrap_dim(int64_t dim, int ndim) {
  return static_cast<int>(dim < 0 ? dim + (ndim > 0 ? ndim : 1) : dim);
}

} // namespace torch_backend::generated
