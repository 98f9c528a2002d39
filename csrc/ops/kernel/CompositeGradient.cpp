#include "csrc/ops/kernel/CompositeGradient.h"

#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>

#include "csrc/ops/dispatch/Foresee.h"
#include "csrc/ops/dispatch/Libraries.h"
#include "csrc/ops/dispatch/OperatorTable.h"

namespace torch_backend {
namespace {

void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  bool records = false;
  for (const auto& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) { records = records || is_recorded(tensor); });
  }
  if (records) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  } else {
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
}

} // namespace

bool is_recorded(const at::Tensor& tensor) {
  return tensor.defined() &&
         ((c10::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined());
}

void register_composite_gradient(const c10::OperatorHandle& op) {
  constexpr auto kKey = c10::DispatchKey::AutogradPrivateUse1;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !op.hasKernelForDispatchKey(kKey)) {
    library_for(op, kKey).impl(
        c10::toString(op.operator_name()).c_str(),
        torch::CppFunction::makeFromBoxedFunction<&call>().debug(registration_label(Source::kComposite)));
  }
}

} // namespace torch_backend
