#include "csrc/ops/dispatch/StructuredKernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_ops.h>
#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/tensor/Empty.h"
#include "csrc/ops/tensor/StorageOf.h"
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

} // namespace

void StructuredOutput::set(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options,
                           bool in_place) {
  if (given == nullptr) {
    own = create_output(sizes, strides, options);
  } else if (in_place) {
    check_in_place(*given, sizes, options);
  } else {
    resize_out(*given, sizes, strides, options);
  }
}

void StructuredOutput::set_proxy(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options) {
  if (given != nullptr && given->strides() != strides) {
    own = create_output(sizes, strides, options);
  }
}

} // namespace detail

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

bool CommonDevice::takes(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return !must_be_aliasable_;
  }
  const auto device = tensor.device();
  if (!device.is_privateuseone() || (device_ && *device_ != device)) {
    return false;
  }
  device_ = device;
  return !must_be_aliasable_ || (tensor.layout() == c10::kStrided && has_memory(tensor));
}

bool CommonDevice::takes(const at::ITensorListRef& tensors) {
  if (must_be_aliasable_ && tensors.size() > kMaxAliases - 2) {
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
