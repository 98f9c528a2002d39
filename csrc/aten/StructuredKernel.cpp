#include "csrc/aten/StructuredKernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_ops.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include "csrc/aten/Alias.h"
#include "csrc/aten/Factories.h"
#include "csrc/aten/StorageOf.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/allocator/DeviceAllocator.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace detail {

void StructuredDevice::use(c10::Device device) {
  TORCH_CHECK(device.type() == c10::DeviceType::PrivateUse1, "Expected a tensor on ", device_api().name(),
              " but found one on ", device, ". (when calling ", op_, ")");
  // Memory that is used in place would outlive a lost device, and a fork.
  device_api().check_usable(device.index(), op_);
  if (C10_UNLIKELY(device.index() != current_device()) && !before_) {
    before_ = exchange_device(device.index());
  }
  if (profiler::recording()) {
    // The kernel starts when the last output is there. Its end is seen by restore().
    before_ = before_.value_or(device.index());
    profiler::begin_host_kernel(this, op_, device.index(), nullptr, /*on_device=*/true);
  }
}

void StructuredDevice::restore() {
  profiler::end_host_kernel(this);
  exchange_device(*before_);
}

at::Tensor create_output(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options) {
  constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  return filled_if_deterministic(
      strides.empty() ? at::detail::empty_generic(sizes, &device_allocator(), kKeys, dtype, options.memory_format_opt())
                      : at::detail::empty_strided_generic(sizes, strides, &device_allocator(), kKeys, dtype));
}

namespace {

void check_dtype_and_device(const at::Tensor& out, const c10::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ",
              out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ", options.device(), ", but got ",
              out.device(), " instead");
}

} // namespace

void check_in_place(const at::Tensor& self, at::IntArrayRef sizes, const c10::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
              " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
              " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(), " and output tensor size ",
              sizes, " should match");
}

void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const c10::TensorOptions& options) {
  check_dtype_and_device(out, options);
  if (!at::native::resize_output(out, sizes)) {
    return;
  }
  if (!strides.empty()) {
    TORCH_INTERNAL_ASSERT(!options.memory_format_opt().has_value());
    at::_ops::as_strided_::call(const_cast<at::Tensor&>(out), c10::fromIntArrayRefSlow(sizes),
                                c10::fromIntArrayRefSlow(strides), std::nullopt);
  } else if (options.memory_format_opt().has_value()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }
}

std::optional<at::Tensor> create_proxy(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                                       const c10::TensorOptions& options) {
  if (out.strides() == strides) {
    return std::nullopt;
  }
  return create_output(sizes, strides, options);
}

} // namespace detail

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

} // namespace

std::optional<c10::ScalarType> common_dtype(const at::TensorIteratorBase& iterator) {
  // Older versions have no public call that may be asked when there is none. The member is protected: only a derived
  // class may name it.
  struct Reader : at::TensorIteratorBase {
    static c10::ScalarType read(const at::TensorIteratorBase& from) {
      return from.*(&Reader::common_dtype_);
    }
  };
  const auto dtype = Reader::read(iterator);
  return dtype == c10::ScalarType::Undefined ? std::nullopt : std::optional<c10::ScalarType>(dtype);
}

namespace {

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

HostView::~HostView() {
  for (const auto& [index, original] : outputs_) {
    // Some kernels leave their result conjugated and say so with the bit.
    original->_set_conj(aliases_[index].is_conj());
    original->_set_neg(aliases_[index].is_neg());
  }
  for (std::size_t i = 0; i < count_; ++i) {
    give_back_cpu_alias(std::move(aliases_[i]));
  }
}

const at::Tensor& HostView::add(const at::Tensor& tensor) {
  aliases_[count_] = borrow_cpu_alias(tensor);
  return aliases_[count_++];
}

at::ITensorListRef HostView::list(const at::ITensorListRef& tensors) {
  const auto first = count_;
  for (const auto& tensor : tensors) {
    add(tensor);
  }
  return at::TensorList(&aliases_[first], count_ - first);
}

const at::Tensor& HostView::output(const at::Tensor& tensor) {
  outputs_.emplace_back(count_, tensor.unsafeGetTensorImpl());
  return add(tensor);
}

bool CommonDevice::takes(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return !must_be_viewable_;
  }
  const auto device = tensor.device();
  if (!device.is_privateuseone() || (device_ && *device_ != device)) {
    return false;
  }
  device_ = device;
  return !must_be_viewable_ || (tensor.layout() == c10::kStrided && has_memory(tensor));
}

bool CommonDevice::takes(const at::ITensorListRef& tensors) {
  if (must_be_viewable_ && tensors.size() > HostView::kRoom - 2) {
    return false;
  }
  for (const auto& tensor : tensors) {
    if (!takes(tensor)) {
      return false;
    }
  }
  return true;
}

} // namespace torch_backend
