// Any operator's CPU kernel on device tensors, driven by its schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "csrc/ops/dispatch/OperatorTraits.h"

namespace torch_backend {

/// Calls the kernel that `op` has for `host_key`, CPU's or that of a layout on the CPU. Tensors may have any layout.
/// Replaces the arguments on `stack` by the results. Results are on the device, written arguments are the same tensors
/// afterwards, random numbers come from the device's generator. Returns the bytes copied between device and host.
uint64_t call_on_host(const c10::OperatorHandle& op, const OperatorTraits& traits, torch::jit::Stack* stack,
                      c10::DispatchKey host_key = c10::DispatchKey::CPU);

} // namespace torch_backend
