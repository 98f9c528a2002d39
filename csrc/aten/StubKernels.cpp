// Operators whose composite kernel calls a CPU kernel by device type, which an out-of-tree device has none of.

#include <ATen/core/Tensor.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/kaiser_window.h>

#include "csrc/aten/AtenKernel.h"
#include "csrc/aten/Register.h"
#include "csrc/aten/Registrar.h"

namespace torch_backend {
namespace {

/// Made on the CPU, as its size makes cheap, and copied.
at::Tensor kaiser_window_beta(int64_t window_length, bool periodic, double beta, std::optional<c10::ScalarType> dtype,
                              std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                              std::optional<bool> pin_memory) {
  const auto options = at::TensorOptions(c10::kCPU).dtype(dtype).layout(layout).pinned_memory(pin_memory);
  return at::kaiser_window(window_length, periodic, beta, options)
      .to(device.value_or(c10::Device(c10::DeviceType::PrivateUse1)));
}

at::Tensor kaiser_window_periodic(int64_t window_length, bool periodic, std::optional<c10::ScalarType> dtype,
                                  std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                                  std::optional<bool> pin_memory) {
  return kaiser_window_beta(window_length, periodic, /*beta=*/12.0, dtype, layout, device, pin_memory);
}

at::Tensor kaiser_window(int64_t window_length, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return kaiser_window_periodic(window_length, /*periodic=*/true, dtype, layout, device, pin_memory);
}

} // namespace

void register_stub_kernels(Registrar& m) {
  m.impl("conj_physical_", TORCH_FN(AtenKernel<at::_ops::conj_physical_>::call), Source::kAten);
  m.impl("kaiser_window", TORCH_FN(kaiser_window));
  m.impl("kaiser_window.periodic", TORCH_FN(kaiser_window_periodic));
  m.impl("kaiser_window.beta", TORCH_FN(kaiser_window_beta));
}

} // namespace torch_backend
