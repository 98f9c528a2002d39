// Filling a tensor with one value, which devices can do themselves.

#include <cstring>

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/fill_ops.h>
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

at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
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

} // namespace

void register_fill(Registrar& m) {
  m.impl("fill_.Scalar", TORCH_FN(fill_));
  m.impl("zero_", TORCH_FN(zero_));
}

} // namespace torch_backend
