// Filling a tensor with one value, which devices can do themselves.

#include <cstring>

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/scalar_tensor_native.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/native/Register.h"
#include "csrc/ops/tensor/Empty.h"
#include "csrc/ops/tensor/StorageOf.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace {

/// How many elements are enough to see whether PyTorch takes a number for those of `tensor`: it asks less of a single one.
int64_t few(const at::Tensor& tensor) {
  return tensor.numel() == 1 ? 1 : 2;
}

/// Whether a kernel fills faster: devices have fills of up to four bytes, and make others of several.
bool is_for_a_kernel(const at::Tensor& self, const at::Tensor& element) {
  constexpr int64_t kWordBytes = 4, kWorthALaunch = 4096;
  const auto type = self.scalar_type();
  if (self.numel() < kWorthALaunch || (type != at::kLong && type != at::kDouble && !at::isComplexType(type)) ||
      !compiled::has_modules() || device_api().host_access() ||
      !compiled::computes(self.device().index(), compiled::value_type(tb_dtype_or_none(type)))) {
    return false;
  }
  const auto* bytes = static_cast<const char*>(element.const_data_ptr());
  return std::memcmp(bytes, bytes + kWordBytes, static_cast<std::size_t>(self.element_size() - kWordBytes)) != 0;
}

/// Of one element that the host reaches, with the CPU's conversions, which are Scalar's but for smaller types.
void set_element(const at::Tensor& self, const at::Scalar& value) {
  const auto device = self.get_device();
  device_api().check_usable(device, "fill_");
  const profiler::HostKernelSpan span("aten::fill_", device);
  void* const element = self.mutable_data_ptr();
  switch (self.scalar_type()) {
    case at::kFloat:
      *static_cast<float*>(element) = value.toFloat();
      break;
    case at::kDouble:
      *static_cast<double*>(element) = value.toDouble();
      break;
    case at::kLong:
      *static_cast<int64_t*>(element) = value.toLong();
      break;
    default: {
      const at::Tensor converted = at::detail::scalar_tensor_static(value, self.scalar_type(), at::kCPU);
      std::memcpy(element, converted.const_data_ptr(), self.itemsize());
    }
  }
}

at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
  if (runs_inline() && self.numel() == 1 && !self.is_conj() && !self.is_neg()) {
    check_has_memory(*self.unsafeGetTensorImpl(), "aten::fill_");
    set_element(self, value);
    return self;
  }
  if (runs_inline() || !self.is_non_overlapping_and_dense() || self.is_conj() || self.is_neg()) {
    if (!runs_on_aliased_memory() && at::has_internal_overlap(self) != at::MemOverlap::Yes) {
      at::Tensor elements = at::empty({few(self)}, self.options());
      fill_(elements, value);
      return self.copy_(elements.select(0, 0).expand(self.sizes())); // within the device
    }
    return AtenKernel<at::_ops::fill__Scalar>::call(self, value);
  }
  check_has_memory(*self.unsafeGetTensorImpl(), "aten::fill_");
  // The CPU's own fill converts the value, and says so if it does not fit.
  at::Tensor element = at::detail::empty_cpu({few(self)}, self.scalar_type());
  at::native::fill_(element, value);
  if (is_for_a_kernel(self, element)) {
    return at::_ops::fill__Tensor::call(self, element.select(0, 0));
  }
  if (self.numel() > 0) {
    const c10::DeviceGuard guard(self.device());
    device_api().memory_fill(self.device().index(), self.mutable_data_ptr(), element.const_data_ptr(),
                             static_cast<uint32_t>(self.element_size()), self.nbytes(), current_stream().handle());
  }
  return self;
}

at::Tensor& zero_(at::Tensor& self) {
  // More of them ATen divides among threads.
  if (!runs_inline() || !self.is_non_overlapping_and_dense() || self.numel() > at::internal::GRAIN_SIZE) {
    return fill_(self, 0);
  }
  device_api().check_usable(self.device().index(), "zero_");
  check_has_memory(*self.unsafeGetTensorImpl(), "aten::zero_");
  const profiler::HostKernelSpan span("aten::zero_", self.device().index());
  if (self.numel() > 0) {
    std::memset(self.mutable_data_ptr(), 0, self.nbytes());
  }
  return self;
}

/// What `a[mask] = 0` begins with. PyTorch's own makes an empty tensor and fills it, by two more calls.
at::Tensor scalar_tensor(const at::Scalar& value, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  if (!runs_inline() || !device.has_value() || (device->has_index() && device->index() != current_device()) ||
      pin_memory.value_or(false) || layout.value_or(c10::kStrided) != c10::kStrided) {
    return at::native::scalar_tensor(value, dtype, layout, device, pin_memory);
  }
  const at::Tensor tensor = empty_on_device(current_device(), {}, {}, c10::dtype_or_default(dtype));
  set_element(tensor, value);
  return tensor;
}

} // namespace

void register_fill(Registrar& m) {
  m.impl("scalar_tensor", TORCH_FN(scalar_tensor), Source::kComposite);
  m.impl("fill_.Scalar", TORCH_FN(fill_));
  m.impl("zero_", TORCH_FN(zero_));
}

} // namespace torch_backend
