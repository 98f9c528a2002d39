// New tensors with an old one's values, in one step where the host can do the copy. PyTorch's own kernels make a tensor and
// copy into it by two more calls through the dispatcher, which cost as much as a small copy.

#include <optional>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/clone_native.h>
#include <c10/util/strides.h>

#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/native/Copy.h"
#include "csrc/ops/native/Register.h"
#include "csrc/ops/tensor/Alias.h"
#include "csrc/ops/tensor/Empty.h"
#include "csrc/ops/tensor/StorageOf.h"
#include "csrc/ops/tensor/Transfer.h"

namespace torch_backend {
namespace {

/// Whether the host can copy it now, and there is memory to copy and nothing else.
bool is_plain(const at::Tensor& self) {
#if __has_include(<ATen/core/NamedTensor.h>) // before 2.13
  if (self.has_names()) {
    return false;
  }
#endif
  return runs_inline() && self.numel() > 0 && !self._is_zerotensor();
}

bool is_preserved(std::optional<c10::MemoryFormat> format) {
  return format.value_or(c10::MemoryFormat::Preserve) == c10::MemoryFormat::Preserve;
}

at::Tensor copy_of(const at::Tensor& self, at::IntArrayRef strides, c10::ScalarType dtype, bool on_host) {
  const CpuAllocatorRedirect off(/*enable=*/false); // of a CPU kernel that calls this: a copy to the host goes there
  const at::Tensor copy = on_host ? at::detail::empty_strided_cpu(self.sizes(), strides, dtype)
                                  : empty_on_device(self.get_device(), self.sizes(), strides, dtype);
  if (dtype == self.scalar_type() && strides == self.strides() && !self.is_conj() && !self.is_neg()) {
    const auto device = self.get_device();
    check_has_memory(*self.unsafeGetTensorImpl(), "aten::clone");
    device_api().memory_copy(on_host ? -1 : device, data_of(copy), device, data_of(self), self.nbytes(),
                             on_host ? TB_COPY_DEVICE_TO_HOST : TB_COPY_DEVICE_TO_DEVICE,
                             current_stream(device).handle());
  } else {
    copy_tensor(copy, self, /*non_blocking=*/false);
  }
  return copy;
}

at::Tensor clone(const at::Tensor& self, std::optional<c10::MemoryFormat> format) {
  if (is_plain(self)) {
    if (is_preserved(format) && self.is_non_overlapping_and_dense()) {
      return copy_of(self, self.strides(), self.scalar_type(), /*on_host=*/false);
    }
    if (format == c10::MemoryFormat::Contiguous) {
      return copy_of(self, c10::contiguous_strides(self.sizes()), self.scalar_type(), /*on_host=*/false);
    }
  }
  return at::native::clone(self, format);
}

at::Tensor to_copy(const at::Tensor& self, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                   std::optional<c10::Device> device, std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<c10::MemoryFormat> format) {
  const auto type = dtype.value_or(self.scalar_type());
  const bool on_host = device.has_value() && device->is_cpu();
  const bool here = !device.has_value() || *device == self.device();
  if (is_plain(self) && (on_host || here) && is_preserved(format) && self.is_non_overlapping_and_dense() &&
      layout.value_or(c10::kStrided) == c10::kStrided && !pin_memory.value_or(false) && !non_blocking &&
      !at::isQIntType(type)) {
    return copy_of(self, self.strides(), type, on_host);
  }
  return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
}

} // namespace

void register_clone(Registrar& m) {
  m.impl("clone", TORCH_FN(clone), Source::kComposite);
  m.impl("_to_copy", TORCH_FN(to_copy), Source::kComposite);
}

} // namespace torch_backend
