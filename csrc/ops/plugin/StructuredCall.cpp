#include "csrc/ops/plugin/StructuredCall.h"

#include <ATen/ops/fill_ops.h>

namespace torch_backend {

bool PlainCalls::fits(const at::Tensor& out, const at::Tensor& tensor) {
  const auto* to = out.unsafeGetTensorImpl();
  const auto* from = tensor.unsafeGetTensorImpl();
  if (to->is_neg()) { // no other value bit goes with a floating dtype
    return false;
  }
  if (to == from) {
    return to->is_contiguous();
  }
  return from->key_set() == to->key_set() && from->dtype() == to->dtype() && from->device() == to->device() &&
         from->layout() == c10::kStrided && from->is_contiguous() && to->is_contiguous() &&
         from->sizes() == to->sizes() &&
         from->unsafe_storage().unsafeGetStorageImpl() != to->unsafe_storage().unsafeGetStorageImpl();
}

namespace detail {

void PointwiseInputs::add(const at::Tensor& tensor) {
  const auto sizes = output_.sizes();
  const bool on_device = tensor.device() == output_.device();
  const bool converted = dtype_.has_value() && tensor.scalar_type() != *dtype_ && !kernel_.takes_mixed_dtypes();
  if (C10_LIKELY(on_device && !converted)) {
    if (C10_LIKELY(tensor.sizes() == sizes)) {
      call_.add(tensor);
    } else {
      call_.add_expanded(tensor, sizes);
    }
    return;
  }
  if (on_device) {
    kept_.push_back(tensor.to(*dtype_));
  } else if (kernel_.takes_numbers()) {
    call_.add_number(tensor);
    return;
  } else {
    // The iterator has let nothing else pass than a tensor of one element.
    const auto options = output_.options().dtype(dtype_.value_or(tensor.scalar_type()));
    kept_.push_back(create_output({}, {}, options));
    at::_ops::fill__Scalar::call(kept_.back(), tensor.item());
  }
  call_.add_expanded(kept_.back(), sizes);
}

bool takes_output(const at::TensorIteratorBase& iterator, const at::Tensor& output) {
  const auto dtype = common_dtype(iterator);
  return !dtype || output.scalar_type() == *dtype || output.scalar_type() == c10::ScalarType::Bool;
}

at::Tensor fresh_like(const at::Tensor& tensor) {
  return create_output(tensor.sizes(), {}, tensor.options());
}

} // namespace detail
} // namespace torch_backend
