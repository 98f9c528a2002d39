// What an operator will return, worked out on meta tensors before it runs.
#pragma once

#include <memory>
#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include "csrc/ops/dispatch/OperatorTraits.h"
#include "csrc/ops/dispatch/Values.h"

namespace torch_backend {

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
