// Operators whose composite kernel does not do for an out-of-tree device: it calls a CPU kernel by device type, refuses
// devices it does not know by name, or counts on being called without the dispatcher.

#include <ATen/core/Tensor.h>
#include <ATen/ops/addr_ops.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/kaiser_window.h>
#include <ATen/ops/mode_ops.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

/// The kernel of addr.out tells a call in place by self and the output being one C++ object, which calls that go
/// through the dispatcher's stack do not keep: it would broadcast, and resize, self.
at::Tensor& addr_(at::Tensor& self, const at::Tensor& vec1, const at::Tensor& vec2, const at::Scalar& beta,
                  const at::Scalar& alpha) {
  TORCH_CHECK(self.dim() == 2, "addr_: 2D tensor expected, got ", self.dim(), "D tensor for input");
  TORCH_CHECK(vec1.dim() != 1 || vec2.dim() != 1 || (self.size(0) == vec1.size(0) && self.size(1) == vec2.size(0)),
              "size mismatch, input: ", self.sizes(), ", v1: ", vec1.sizes(), ", v2: ", vec2.sizes());
  return at::_ops::addr_out::call(self, vec1, vec2, beta, alpha, self);
}

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
  m.impl("addr_", TORCH_FN(addr_));
  m.impl("conj_physical_", TORCH_FN(AtenKernel<at::_ops::conj_physical_>::call), Source::kAten);
  m.impl("mode.values", TORCH_FN(AtenKernel<at::_ops::mode_values>::call), Source::kAten);
  m.impl("kaiser_window", TORCH_FN(kaiser_window));
  m.impl("kaiser_window.periodic", TORCH_FN(kaiser_window_periodic));
  m.impl("kaiser_window.beta", TORCH_FN(kaiser_window_beta));
}

} // namespace torch_backend
