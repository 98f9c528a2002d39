// CPU kernels in stream order: for asynchronous devices whose memory the host can access.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "csrc/ops/host/BoxedCall.h"

namespace torch_backend {

/// Note [Asynchronous CPU kernels]
/// What a call will return is worked out with meta tensors, its outputs are allocated, and the CPU kernel is enqueued
/// on the current stream as a host function over aliases of the arguments' memory. As with a GPU kernel, the arguments'
/// tensors may be gone by the time it runs; the allocator keeps their memory from other streams until then, and wrong
/// use of several streams shows as wrong numbers.
///
/// False, and nothing done, if the device is not of that kind or the call cannot be foreseen: random operators outside of
/// graphs, results that are no tensors or whose shape depends on values, out= arguments that need another size or repeat
/// their elements, operators without meta kernel, arguments that the meta kernel refuses (the caller then gets the CPU
/// kernel's own error).
bool try_async_call(const c10::OperatorHandle& op, const OperatorTraits& traits, torch::jit::Stack* stack);

} // namespace torch_backend
