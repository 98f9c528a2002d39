// relu, which ATen makes of clamp_min for every device alike: without the detour over aliases.

#include <ATen/ops/relu_native.h>
#include <ATen/ops/relu_ops.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

at::Tensor relu(const at::Tensor& self) {
  return runs_inline() ? at::native::relu(self) : AtenKernel<at::_ops::relu>::call_boxed(self);
}

at::Tensor& relu_(at::Tensor& self) {
  return runs_inline() ? at::native::relu_(self) : AtenKernel<at::_ops::relu_>::call_boxed(self);
}

} // namespace

void register_activation(Registrar& m) {
  m.impl("relu", TORCH_FN(relu), Source::kAten);
  m.impl("relu_", TORCH_FN(relu_), Source::kAten);
}

} // namespace torch_backend
