#include "csrc/ops/generated/View.h"

#include <utility>

#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"

namespace torch_backend::generated {

View::View(const tb_tensor& tensor)
    : address(static_cast<const char*>(tensor.data) + tensor.byte_offset),
      type(value_type(tensor.dtype)),
      sizes(tensor.shape, tensor.shape + tensor.ndim),
      strides(tensor.strides, tensor.strides + tensor.ndim) {}

View::View(const void* memory, ValueType value_type, c10::ArrayRef<int64_t> shape)
    : address(memory), type(value_type), sizes(shape.begin(), shape.end()), strides(shape.size()) {
  int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= sizes[d];
  }
}

int64_t View::count() const {
  int64_t count = 1;
  for (const auto size : sizes) {
    count *= size;
  }
  return count;
}

bool View::is_contiguous() const {
  int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != stride) {
      return false;
    }
    stride *= sizes[d];
  }
  return true;
}

View View::repeated(int64_t at, int64_t size) const {
  View view = *this;
  view.sizes.insert(view.sizes.begin() + at, size);
  view.strides.insert(view.strides.begin() + at, 0);
  return view;
}

View View::along(const View& like, int64_t at) const {
  View view = *this;
  view.sizes = like.sizes;
  view.strides.assign(like.sizes.size(), 0);
  if (dim() > 0 && at < like.dim()) {
    view.strides[static_cast<std::size_t>(at)] = strides[0];
  }
  return view;
}

View View::reshaped(c10::ArrayRef<int64_t> shape) const {
  return {address, type, shape};
}

View View::transposed(int64_t a, int64_t b) const {
  View view = *this;
  std::swap(view.sizes[static_cast<std::size_t>(a)], view.sizes[static_cast<std::size_t>(b)]);
  std::swap(view.strides[static_cast<std::size_t>(a)], view.strides[static_cast<std::size_t>(b)]);
  return view;
}

tb_tensor View::tensor() const {
  return {const_cast<void*>(address),
          {12, 0},
          static_cast<int32_t>(sizes.size()),
          dtype_of(type),
          const_cast<int64_t*>(sizes.data()),
          const_cast<int64_t*>(strides.data()),
          0};
}

bool view_of(const tb_arg& argument, View* view) {
  if (argument.tag != TB_ARG_TENSOR) {
    return false;
  }
  *view = View(*static_cast<const tb_tensor*>(argument.v.p));
  return view->type != ValueType::none;
}

bool temporary(const tb_kernel_context& context, ValueType type, c10::ArrayRef<int64_t> shape, View* view,
               tb_status* status) {
  *view = View(nullptr, type, shape);
  void* memory = nullptr;
  *status = context.host->alloc_workspace(static_cast<uint64_t>(view->count()) * size_of(type), &memory);
  view->address = memory;
  return *status == TB_STATUS_OK;
}

} // namespace torch_backend::generated
