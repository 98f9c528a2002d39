// A tensor as kernels of ours take it apart and put it together.
#pragma once

#include <cstdint>

#include <c10/core/WrapDimMinimal.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/compiled/engine/ValueType.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

using Dims = c10::SmallVector<int64_t, 8>;

/// Does not own its memory. Strides are in elements, and may be anything, also negative.
struct View {
  char* data = nullptr; // its first element
  tb_dtype dtype{};
  Dims sizes;
  Dims strides;

  View() = default;
  explicit View(const tb_tensor& tensor);
  /// Contiguous ones.
  View(const void* memory, tb_dtype element, c10::ArrayRef<int64_t> shape);
  View(const void* memory, ValueType element, c10::ArrayRef<int64_t> shape) : View(memory, dtype_of(element), shape) {}

  ValueType type() const {
    return value_type(dtype);
  }
  int element_bytes() const {
    return dtype.bits / 8;
  }
  int dim() const {
    return static_cast<int>(sizes.size());
  }
  int64_t& size(int d) {
    return sizes[static_cast<std::size_t>(d)];
  }
  int64_t size(int d) const {
    return sizes[static_cast<std::size_t>(d)];
  }
  int64_t& stride(int d) {
    return strides[static_cast<std::size_t>(d)];
  }
  int64_t stride(int d) const {
    return strides[static_cast<std::size_t>(d)];
  }
  int64_t numel() const;
  bool is_contiguous() const;

  void add_dim(int64_t size, int64_t stride);
  /// `count` elements of dimension d from `start` on.
  void narrow(int d, int64_t start, int64_t count);
  /// Gets a new dimension before dimension `at`, along which the elements are the same.
  void repeat(int64_t at, int64_t size);
  View without_dim(int d) const;
  /// With a last dimension of two, the halves of each element: of complex numbers their parts.
  View in_halves() const;
  /// One of them.
  View half(int which) const;
  bool expands_to(c10::ArrayRef<int64_t> shape) const;
  /// Broadcast to a shape that it can be broadcast to.
  View expanded(c10::ArrayRef<int64_t> shape) const;
  /// With the shape of `like`: one element, or [size] along dimension `at` of it.
  View along(const View& like, int64_t at) const;

  /// Points at this view's sizes and strides.
  tb_tensor tensor() const;
};

/// What `dim` of an argument means for `num_dims` dimensions. Raises as PyTorch does if there is no such dimension.
inline int wrap_dim(int64_t dim, int num_dims) {
  return static_cast<int>(c10::maybe_wrap_dim(dim, static_cast<int64_t>(num_dims)));
}

/// The view that an argument is; false if it is no tensor, or of a dtype that kernels do not take.
bool view_of(const tb_arg& argument, View* view);
/// The same of a floating dtype; None is a view without data.
bool optional_view(const tb_arg& argument, View* view);

/// Device memory for the duration of the kernel call. False: the failure is `*status`.
bool temporary(const tb_kernel_context& context, ValueType type, c10::ArrayRef<int64_t> shape, View* view,
               tb_status* status);

} // namespace torch_backend::compiled
