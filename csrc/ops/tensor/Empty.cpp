#include "csrc/ops/tensor/Empty.h"

#include <optional>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/tensor/Alias.h"

namespace torch_backend {

at::Tensor filled_if_deterministic(at::Tensor tensor) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty_on_device(c10::DeviceIndex device, at::IntArrayRef sizes, at::IntArrayRef strides,
                           c10::ScalarType dtype) {
  std::optional<c10::DeviceGuard> guard;
  if (C10_UNLIKELY(device != current_device())) {
    guard.emplace(c10::Device(c10::DeviceType::PrivateUse1, device));
  }
  return filled_if_deterministic(at::detail::empty_strided_generic(
      sizes, strides, &device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype));
}

at::Tensor empty_like_layout(const at::Tensor& like, c10::Device device) {
  const bool dense = like.is_non_overlapping_and_dense();
  const auto strides = dense ? like.strides().vec() : at::infer_dense_strides(like.sizes(), like.strides());
  if (device.is_cpu()) {
    const CpuAllocatorRedirect off(/*enable=*/false);
    return at::detail::empty_strided_cpu(like.sizes(), strides, like.scalar_type());
  }
  const c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(like.sizes(), strides, &device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), like.scalar_type());
}

} // namespace torch_backend
