#include <ATen/EmptyTensor.h>
#include <c10/core/TensorOptions.h>

#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/native/Register.h"
#include "csrc/ops/tensor/Empty.h"

namespace torch_backend {
namespace {

constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

/// Makes the device of a factory call current for its duration.
class FactoryGuard {
 public:
  explicit FactoryGuard(std::optional<c10::Device> device) : before_(current_device()) {
    if (device.has_value() && device->has_index() && device->index() != before_) {
      exchange_device(resolve_device(device->index()));
    }
  }
  ~FactoryGuard() {
    exchange_device(before_);
  }
  FactoryGuard(const FactoryGuard&) = delete;
  FactoryGuard& operator=(const FactoryGuard&) = delete;

 private:
  c10::DeviceIndex before_;
};

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout.has_value() || *layout == c10::kStrided, device_api().name(),
                              " has no tensors of layout ", layout.value_or(c10::kStrided), ".");
  TORCH_CHECK(!pin_memory.value_or(false), "Only CPU memory can be pinned; a tensor on ", device_api().name(),
              " cannot be created with pin_memory=True.");
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const FactoryGuard guard(device);
  return filled_if_deterministic(at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &device_allocator(), kKeys,
                                                           c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const FactoryGuard guard(device);
  return filled_if_deterministic(at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size),
                                                                   C10_AS_INTARRAYREF_SLOW(stride), &device_allocator(),
                                                                   kKeys, c10::dtype_or_default(dtype)));
}

/// A tensor of zeros that has no memory; used by autograd for undefined gradients.
at::Tensor efficient_zero_tensor(c10::SymIntArrayRef size, std::optional<c10::ScalarType> dtype,
                                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                                 std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const FactoryGuard guard(device);
  auto tensor = at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &device_allocator(),
                                          kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                          c10::dtype_or_default(dtype), std::nullopt);
  tensor.unsafeGetTensorImpl()->unsafe_storage().set_nbytes(0);
  tensor.unsafeGetTensorImpl()->unsafe_storage().set_data_ptr_noswap(device_allocator().allocate(0));
  return tensor;
}

} // namespace

void register_factories(Registrar& m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
}

} // namespace torch_backend
