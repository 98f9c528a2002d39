#include "csrc/ops/compiled/engine/View.h"

#include <algorithm>

#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"

namespace torch_backend::compiled {

View::View(const tb_tensor& tensor)
    : data(static_cast<char*>(tensor.data) + tensor.byte_offset),
      dtype(tensor.dtype),
      sizes(tensor.shape, tensor.shape + tensor.ndim),
      strides(tensor.strides, tensor.strides + tensor.ndim) {}

View::View(const void* memory, tb_dtype element, c10::ArrayRef<int64_t> shape)
    : data(static_cast<char*>(const_cast<void*>(memory))),
      dtype(element),
      sizes(shape.begin(), shape.end()),
      strides(shape.size()) {
  int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= sizes[d];
  }
}

int64_t View::numel() const {
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

void View::add_dim(int64_t size, int64_t stride) {
  sizes.push_back(size);
  strides.push_back(stride);
}

void View::narrow(int d, int64_t start, int64_t count) {
  data += start * stride(d) * element_bytes();
  size(d) = count;
}

void View::repeat(int64_t at, int64_t size) {
  sizes.insert(sizes.begin() + at, size);
  strides.insert(strides.begin() + at, 0);
}

View View::without_dim(int d) const {
  View view = *this;
  view.sizes.erase(view.sizes.begin() + d);
  view.strides.erase(view.strides.begin() + d);
  return view;
}

View View::in_halves() const {
  View view = half(0);
  view.add_dim(2, 1);
  return view;
}

View View::half(int which) const {
  View view = *this;
  view.dtype = {dtype.code == TB_DTYPE_COMPLEX ? uint8_t{TB_DTYPE_FLOAT} : dtype.code,
                static_cast<uint8_t>(dtype.bits / 2), 1};
  view.data += which * view.element_bytes();
  for (auto& stride : view.strides) {
    stride *= 2;
  }
  return view;
}

bool View::expands_to(c10::ArrayRef<int64_t> shape) const {
  return sizes.size() <= shape.size() &&
         std::equal(sizes.begin(), sizes.end(), shape.end() - sizes.size(),
                    [](int64_t own, int64_t wanted) { return own == 1 || own == wanted; });
}

View View::expanded(c10::ArrayRef<int64_t> shape) const {
  View view = *this;
  view.sizes.assign(shape.begin(), shape.end());
  view.strides.assign(shape.size(), 0);
  const std::size_t added = shape.size() - sizes.size();
  for (std::size_t d = added; d < shape.size(); ++d) {
    view.strides[d] = sizes[d - added] == 1 ? 0 : strides[d - added];
  }
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

tb_tensor View::tensor() const {
  return {data, {kExtDevice, 0}, dim(), dtype, const_cast<int64_t*>(sizes.data()), const_cast<int64_t*>(strides.data()),
          0};
}

bool view_of(const tb_arg& argument, View* view) {
  if (argument.tag != TB_ARG_TENSOR) {
    return false;
  }
  *view = View(*static_cast<const tb_tensor*>(argument.v.p));
  return view->type() != ValueType::none;
}

bool optional_view(const tb_arg& argument, View* view) {
  return argument.tag == TB_ARG_NONE || (view_of(argument, view) && is_floating(view->type()));
}

bool temporary(const tb_kernel_context& context, ValueType type, c10::ArrayRef<int64_t> shape, View* view,
               tb_status* status) {
  *view = View(nullptr, type, shape);
  void* memory = nullptr;
  *status = context.host->alloc_workspace(static_cast<uint64_t>(view->numel()) * size_of(type), &memory);
  view->data = static_cast<char*>(memory);
  return *status == TB_STATUS_OK;
}

} // namespace torch_backend::compiled
