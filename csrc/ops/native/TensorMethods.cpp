// Small operators about a tensor's identity rather than its values.

#include <ATen/core/Tensor.h>
#include <ATen/ops/is_set_to_native.h>

#include "csrc/core/Stream.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator().recordStream(self.storage().data_ptr(), stream);
}

/// PyTorch's own rule leaves PrivateUse1 out, and without it `module.to(device)` replaces Parameter objects, so that an
/// optimizer made before keeps the old ones. It is: both plain dense tensors, or both of the same other kind.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto is_dense = [](const at::Tensor& tensor) {
    const auto keys = tensor.unsafeGetTensorImpl()->key_set();
    return keys.has_any(c10::DispatchKeySet(c10::BackendComponent::CPUBit) |
                        c10::DispatchKeySet(c10::BackendComponent::PrivateUse1Bit)) &&
           keys.has(c10::DispatchKey::Dense);
  };
  return (is_dense(self) && is_dense(from)) ||
         self.unsafeGetTensorImpl()->key_set() == from.unsafeGetTensorImpl()->key_set();
}

} // namespace

void register_tensor_methods(Registrar& m) {
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
}

} // namespace torch_backend
