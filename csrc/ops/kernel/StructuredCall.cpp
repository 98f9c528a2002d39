#include "csrc/ops/kernel/StructuredCall.h"

#include <algorithm>

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
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

StructuredCall::StructuredCall(const Kernel& kernel, at::impl::MetaBase& op, std::size_t num_outputs)
    : kernel_(kernel), op_(op), num_outputs_(num_outputs), call_(kernel, op.maybe_get_output(0).device().index()) {
  has_work_ = kernel.has(kUpdatesFirst) && kernel.has(kTakesEmpty); // into nothing too: no index is in range
  for (std::size_t i = 0; i < num_outputs; ++i) {
    has_work_ = has_work_ || op.maybe_get_output(static_cast<int64_t>(i)).numel() > 0;
  }
}

void GivenInputsCall::add(const at::Tensor& tensor) {
  if (!is_begun_) {
    first_ = tensor.unsafeGetTensorImpl();
  }
  is_begun_ = true;
  note(tensor);
  call_.add(tensor);
}

void GivenInputsCall::add(const std::optional<at::Tensor>& tensor) {
  is_begun_ = true;
  if (tensor.has_value()) {
    note(*tensor);
  }
  call_.add(tensor);
}

void GivenInputsCall::add(const at::ITensorListRef& tensors) {
  is_begun_ = true;
  for (const auto& tensor : tensors) {
    note(tensor);
  }
  call_.add(tensors);
}

void GivenInputsCall::note(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage()) {
    inputs_.push_back(tensor.unsafeGetTensorImpl());
  }
}

/// What the meta functions of such operators leave to PyTorch's own kernels.
void check_overlap(const at::Tensor& output, const c10::TensorImpl& input) {
  if (output.unsafeGetTensorImpl() != &input) {
    at::assert_no_partial_overlap(
        output, at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(
                    const_cast<c10::TensorImpl*>(&input))));
  }
}

bool GivenInputsCall::is_read(const at::Tensor& output) const {
  if (!output.has_storage()) {
    return false;
  }
  const auto num_shared = std::count_if(inputs_.begin(), inputs_.end(), [&](const c10::TensorImpl* input) {
    const bool shares = input->storage().is_alias_of(output.storage());
    if (C10_UNLIKELY(shares)) {
      check_overlap(output, *input);
    }
    return shares;
  });
  const bool updates = kernel_.has(kUpdatesFirst) && output.unsafeGetTensorImpl() == first_;
  return num_shared > (updates ? 1 : 0);
}

/// What PyTorch leaves to its own kernels: what is added has to expand to the result. Raises as they do.
void check_addend(const c10::TensorImpl& self, const at::Tensor& output) {
  TORCH_CHECK(self.dim() <= output.dim(), "expand(): the number of sizes provided (", output.dim(),
              ") must be greater or equal to the number of dimensions in the tensor (", self.dim(), ")");
  at::inferExpandGeometry(self.sizes(), self.strides(), output.sizes());
}

bool GivenInputsCall::launch() {
  if (first_ != nullptr && kernel_.op() == "aten::addmm.out") {
    check_addend(*first_, op_.maybe_get_output(0));
  }
  if (!has_work_) { // of matrices of two dtypes PyTorch's own kernel is asked, which refuses them
    return kernel_.op() != "aten::mm.out" || inputs_[0]->dtype() == inputs_[1]->dtype();
  }
  c10::SmallVector<at::Tensor, 4> fresh(num_outputs_); // in place of outputs that a kernel reads as it writes
  for (std::size_t i = 0; i < num_outputs_; ++i) {
    const at::Tensor& output = op_.maybe_get_output(static_cast<int64_t>(i));
    at::assert_no_internal_overlap(output);
    if (is_read(output)) {
      fresh[i] = create_output(output.sizes(), {}, output.options());
    }
    call_.add_output(fresh[i].defined() ? fresh[i] : output);
  }
  if (call_.launch() != TB_STATUS_OK) {
    return false;
  }
  for (std::size_t i = 0; i < num_outputs_; ++i) {
    if (fresh[i].defined()) {
      op_.maybe_get_output(static_cast<int64_t>(i)).copy_(fresh[i]);
    }
  }
  return true;
}

PointwiseCall::PointwiseCall(const Kernel& kernel, at::TensorIteratorBase& op, std::size_t num_outputs)
    : StructuredCall(kernel, op, num_outputs), output_(op.maybe_get_output(0)), dtype_(common_dtype(op)) {
  if (dtype_) {
    call_.compute_in(*dtype_);
  }
}

void PointwiseCall::add(const at::Tensor& tensor) {
  const auto sizes = output_.sizes();
  const bool on_device = tensor.device() == output_.device();
  const bool converted = dtype_.has_value() && tensor.scalar_type() != *dtype_ && !kernel_.has(TB_KERNEL_MIXED_DTYPES);
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
  } else if (kernel_.has(TB_KERNEL_NUMBERS)) {
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

bool PointwiseCall::takes_output() const {
  return kernel_.has(TB_KERNEL_MIXED_DTYPES) || !dtype_ || output_.scalar_type() == *dtype_ ||
         output_.scalar_type() == c10::ScalarType::Bool;
}

bool PointwiseCall::launch() {
  if (!has_work_) { // of other dtypes PyTorch's own kernel is asked, which may refuse them
    return !dtype_ || kernel_.accepts(*dtype_, output_.device().index());
  }
  if (!takes_output()) {
    return false;
  }
  call_.add_output(output_);
  return call_.launch() == TB_STATUS_OK;
}

} // namespace detail
} // namespace torch_backend
