// Images of one to three dimensions as [batch, channels, depth, height, width].
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "csrc/ops/compiled/engine/Arguments.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

struct Volume {
  /// The last `dims` dimensions of `tensor` are the image's; channels and batch may be missing.
  Volume(const tb_tensor& tensor, int dims) {
    std::size_t to = 4;
    for (int d = tensor.ndim - 1; d >= 0; --d, --to) {
      to = d == tensor.ndim - 1 - dims ? 1 : to;
      sizes[to] = tensor.shape[d];
      strides[to] = tensor.strides[d];
    }
  }

  std::array<int64_t, 3> image() const {
    return {sizes[2], sizes[3], sizes[4]};
  }
  int64_t count() const {
    return sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4];
  }
  /// Offsets and the count, with what a loop's end adds to it.
  bool fits_32() const {
    int64_t last = count();
    int64_t offset = 0;
    for (std::size_t d = 0; d < 5; ++d) {
      offset += (sizes[d] - 1) * std::abs(strides[d]);
    }
    return std::max(last, offset) < Geometry::kLimit32;
  }

  std::array<int64_t, 5> sizes{1, 1, 1, 1, 1};
  std::array<int64_t, 5> strides{};
};

/// The numbers of a list for `dims` dimensions, one number standing for all of them, before them `other`.
inline std::array<int64_t, 3> for_each_dim(const tb_arg& list, int dims, int64_t other) {
  std::array<int64_t, 3> all{other, other, other};
  const auto* values = static_cast<const int64_t*>(list.v.p);
  for (int d = 0; d < dims; ++d) {
    all[static_cast<std::size_t>(3 - dims + d)] = values[list.length == 1 ? 0 : d];
  }
  return all;
}

} // namespace torch_backend::compiled
