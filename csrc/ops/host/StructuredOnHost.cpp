#include "csrc/ops/host/StructuredOnHost.h"

#include <c10/util/SmallVector.h>

#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace {

/// The operand's converted copy, undefined if it would have other strides.
at::Tensor converted(const at::OperandInfo& operand, c10::ScalarType dtype) {
  const auto& tensor = operand.tensor();
  at::Tensor copy = tensor.to(dtype);
  return tensor.numel() == 1 || copy.strides() == tensor.strides() ? copy : at::Tensor();
}

void exchange(at::OperandInfo& operand, at::Tensor&& copy, c10::ScalarType dtype) {
  const auto old_size = static_cast<int64_t>(c10::elementSize(operand.current_dtype));
  const auto new_size = static_cast<int64_t>(c10::elementSize(dtype));
  for (auto& stride : operand.stride_bytes) {
    stride = stride / old_size * new_size;
  }
  operand.exchange_tensor(c10::MaybeOwned<at::TensorBase>::owned(std::move(copy)));
  operand.data = const_cast<void*>(operand.tensor_base().const_data_ptr());
  operand.current_dtype = operand.target_dtype = dtype;
}

bool make_operands_hosts(at::TensorIteratorBase& iterator) {
  const auto common = common_dtype(iterator);
  const int operands = iterator.ntensors();
  const int outputs = iterator.noutputs();
  c10::SmallVector<std::pair<int, at::Tensor>, 2> copies;
  for (int i = 0; i < operands; ++i) {
    if (C10_UNLIKELY(iterator.operand(i).data == nullptr && iterator.numel() > 0)) {
      return false; // Note [Tensors without a storage]
    }
  }
  for (int i = 0; common && i < operands; ++i) {
    const auto& operand = iterator.operand(i);
    if (C10_LIKELY(operand.current_dtype == *common)) {
      continue;
    }
    if (i < outputs) {
      if (operand.current_dtype != c10::ScalarType::Bool) { // which comparisons write without a conversion
        return false;
      }
      continue;
    }
    at::Tensor copy = converted(operand, *common);
    if (!copy.defined()) {
      return false;
    }
    copies.emplace_back(i, std::move(copy));
  }
  for (auto& [i, copy] : copies) {
    exchange(iterator.operand(i), std::move(copy), *common);
  }
  for (int i = 0; i < operands; ++i) {
    iterator.operand(i).device = c10::Device(c10::DeviceType::CPU);
  }
  return true;
}

} // namespace

bool run_on_host(at::TensorIteratorBase& iterator) {
  const bool taken = make_operands_hosts(iterator);
  if (!taken && profiler::recording()) {
    profiler::forget_host_kernel();
  }
  return taken;
}

CpuAliases::~CpuAliases() {
  for (const auto& [index, original] : outputs_) {
    // Some kernels leave their result conjugated and say so with the bit, or lay it out as their input is.
    const auto& alias = *aliases_[index].unsafeGetTensorImpl();
    if (C10_UNLIKELY(alias.is_conj() != original->is_conj() || alias.is_neg() != original->is_neg())) {
      original->_set_conj(alias.is_conj());
      original->_set_neg(alias.is_neg());
    }
    if (C10_UNLIKELY(alias.strides() != original->strides())) {
      original->set_sizes_and_strides(alias.sizes(), alias.strides());
    }
  }
  while (!aliases_.empty()) {
    store_.give_back(aliases_.pop_back_val());
  }
}

const at::Tensor& CpuAliases::add(const at::Tensor& tensor) {
  aliases_.push_back(store_.borrow(tensor));
  return aliases_.back();
}

at::ITensorListRef CpuAliases::list(const at::ITensorListRef& tensors) {
  const auto first = aliases_.size();
  for (const auto& tensor : tensors) {
    add(tensor);
  }
  return at::TensorList(aliases_.begin() + first, aliases_.size() - first);
}

const at::Tensor& CpuAliases::output(const at::Tensor& tensor) {
  outputs_.emplace_back(aliases_.size(), tensor.unsafeGetTensorImpl());
  return add(tensor);
}

} // namespace torch_backend
