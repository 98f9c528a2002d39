// Random numbers that a graph draws anew in each replay.
#pragma once

#include <ATen/core/stack.h>

#include "csrc/ops/dispatch/OperatorForms.h"

namespace torch_backend {

/// Note [Random numbers in captures]
/// Where a kernel begins in the device's sequence of random numbers is told it when it is launched, so that a graph would
/// repeat them. An operator that does nothing but fill a tensor with them is called before each replay instead, for a tensor
/// that lives as long as the graph; captured is a copy of that. The numbers are those of the same calls without a graph.
/// Other operators that draw are refused (KernelCall).

/// True: `stack`'s current stream captures, the operator is such a one, and its result has replaced the arguments.
bool capture_draw(const OperatorForm& form, torch::jit::Stack& stack);

} // namespace torch_backend
