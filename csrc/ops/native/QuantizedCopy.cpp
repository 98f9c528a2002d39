// Copies of quantized tensors.

#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/Fallback.h"
#include "csrc/ops/host/layouts/Quantized.h"
#include "csrc/ops/native/Copy.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

at::Tensor copy_quantized(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (dst.is_quantized() && !self.is_quantized() && dst.device().is_privateuseone()) {
    static const auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    torch::jit::Stack stack{dst, self.to(dst.device()), false};
    layout_fallback(copy, c10::DispatchKey::QuantizedCPU, &stack); // quantizes
    return dst;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() == dst.scalar_type(), "Cannot copy ", self.scalar_type(), " on ",
                              self.device(), " to ", dst.scalar_type(), " on ", dst.device(),
                              ". Quantize or dequantize it first.");
  copy_tensor(integers_of(dst), integers_of(self), non_blocking);
  return dst;
}

} // namespace

void register_quantized_copy() {
  Registrar m(c10::DispatchKey::QuantizedPrivateUse1);
  m.impl("_copy_from", TORCH_FN(copy_quantized));
}

} // namespace torch_backend
