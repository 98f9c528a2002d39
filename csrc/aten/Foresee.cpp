#include "csrc/aten/Foresee.h"

#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>

namespace torch_backend {

using torch::jit::Stack;

at::Tensor as_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  at::Tensor meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  meta._set_conj(tensor.is_conj());
  meta._set_neg(tensor.is_neg());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return meta;
}

std::optional<Stack> foresee(const c10::OperatorHandle& op, const OperatorTraits& traits,
                             c10::ArrayRef<c10::IValue> arguments) {
  Stack meta;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs; // argument, its meta
  for (const auto& argument : arguments) {
    meta.push_back(map_tensors(argument, [&](const at::Tensor& tensor) {
      pairs.emplace_back(tensor, as_meta(tensor));
      return pairs.back().second;
    }));
  }
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &meta);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  for (const auto& [tensor, its_meta] : pairs) {
    if (tensor.defined() && (tensor.sizes() != its_meta.sizes() || tensor.strides() != its_meta.strides())) {
      return std::nullopt;
    }
  }
  bool fresh = true;
  for (std::size_t i = 0; i < traits.returned_arg.size(); ++i) {
    if (traits.returned_arg[i] >= 0) {
      continue;
    }
    for_each_tensor(meta[i], [&](const at::Tensor& result) {
      if (!result.defined()) {
        return;
      }
      fresh = fresh && result.device().is_meta() && result.layout() == c10::kStrided;
      for (const auto& [tensor, its_meta] : pairs) {
        fresh = fresh && !(its_meta.defined() && its_meta.storage().is_alias_of(result.storage()));
      }
    });
  }
  return fresh ? std::optional<Stack>(std::move(meta)) : std::nullopt;
}

} // namespace torch_backend
