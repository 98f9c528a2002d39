// Whether the tensors of a call are where its operator takes them, and PyTorch's words where they are not.
#pragma once

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "csrc/ops/dispatch/OperatorTraits.h"

namespace torch_backend {

/// Whether an argument is a list of indices, each a tensor or nothing, as x[i, :, j] gives them to operators.
bool are_indices(const c10::Argument& argument);

/// Whether operator `name` takes CPU tensors with dimensions as `argument` beside tensors of the device, as it does on
/// CUDA.
bool may_be_host(const std::string& name, const c10::Argument& argument);

/// Throws what PyTorch says on its own devices unless all tensors are on one device, numbers on the CPU and arguments
/// that may be there left out. `arguments` are all of the operator's.
void check_devices(const c10::OperatorHandle& op, const OperatorTraits& traits, c10::ArrayRef<c10::IValue> arguments);

} // namespace torch_backend
