// A tensor as kernels of ours take it apart and put it together.
#pragma once

#include <cstdint>

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/generated/ValueType.h"
#include "torch_backend/device.h"

namespace torch_backend::generated {

using Dims = c10::SmallVector<int64_t, 8>;

/// Does not own its memory. Strides are in elements.
struct View {
  const void* address = nullptr; // of its first element
  ValueType type = ValueType::none;
  Dims sizes;
  Dims strides;

  View() = default;
  explicit View(const tb_tensor& tensor);
  /// A contiguous one.
  View(const void* memory, ValueType value_type, c10::ArrayRef<int64_t> shape);

  int64_t dim() const {
    return static_cast<int64_t>(sizes.size());
  }
  int64_t count() const;
  bool is_contiguous() const;

  /// With a new dimension before dimension `at`, along which the elements are the same.
  View repeated(int64_t at, int64_t size) const;
  /// With the shape of `like`: one element, or [size] along dimension `at` of it.
  View along(const View& like, int64_t at) const;
  /// Of another shape of as many elements; the view is contiguous.
  View reshaped(c10::ArrayRef<int64_t> shape) const;
  View transposed(int64_t a, int64_t b) const;

  /// Points at this view's sizes and strides.
  tb_tensor tensor() const;
};

/// The view that an argument is; false if it is no tensor, or of a dtype that kernels do not take.
bool view_of(const tb_arg& argument, View* view);

/// Device memory for the duration of the kernel call. False: the failure is `*status`.
bool temporary(const tb_kernel_context& context, ValueType type, c10::ArrayRef<int64_t> shape, View* view,
               tb_status* status);

} // namespace torch_backend::generated
