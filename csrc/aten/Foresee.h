// What an operator will return, worked out on meta tensors before it runs.
#pragma once

#include <memory>
#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include "csrc/aten/BoxedCall.h"

namespace torch_backend {

/// Applies `convert` (at::Tensor to at::Tensor) to every tensor of `value`, lists included, in order.
template <class Convert>
c10::IValue map_tensors(const c10::IValue& value, const Convert& convert) {
  if (value.isTensor()) {
    return convert(value.toTensor());
  }
  if (value.isTensorList()) {
    auto list = value.toTensorVector();
    for (auto& tensor : list) {
      tensor = convert(tensor);
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(convert(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
    return;
  }
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) {
        visit(element.toTensor());
      }
    }
  }
}

/// Generator, or Generator?.
bool is_generator(const c10::Type& type);

/// kNone for results that are no tensors or whose shape depends on values. Needs what the schema says.
Foresight foresight_of(const OperatorTraits& traits);

/// Meta tensors, a value per return.
using Foreseen = std::shared_ptr<const torch::jit::Stack>;

/// The results on meta tensors; nothing if the operator refuses, or would resize or return one of its arguments' memory.
/// Needs a meta kernel. The caller runs below autograd.
Foreseen foresee(const c10::OperatorHandle& op, const OperatorTraits& traits, c10::ArrayRef<c10::IValue> arguments);

/// The same by running the CPU kernel on tensors of zeros and ones, where the meta kernel does not do: nothing if it
/// fails, or would resize or return one of its arguments' memory.
Foreseen foresee_by_trial(const c10::OperatorHandle& op, const OperatorTraits& traits,
                          c10::ArrayRef<c10::IValue> arguments);

} // namespace torch_backend
