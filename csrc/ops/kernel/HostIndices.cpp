#include "csrc/ops/kernel/HostIndices.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "csrc/ops/dispatch/Values.h"

namespace torch_backend {

std::optional<c10::IValue> brought_from_host(const c10::IValue& value, c10::Device device) {
  const auto is_brought = [is_list = value.isList()](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_cpu() && (is_list || tensor.dim() == 0);
  };
  bool any = false;
  for_each_tensor(value, [&](const at::Tensor& tensor) { any = any || is_brought(tensor); });
  if (!any) {
    return std::nullopt;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return map_tensors(value, [&](const at::Tensor& tensor) { return is_brought(tensor) ? tensor.to(device) : tensor; });
}

} // namespace torch_backend
