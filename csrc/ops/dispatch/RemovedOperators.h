// Operators that are taken away again: custom ones, by whoever defined them.
#pragma once

#include <atomic>
#include <memory>

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_backend {

/// Note [Operators that go]
/// A custom operator may be removed, and defined again with another schema; the dispatcher then may hand out the same
/// handle for it. So what is kept about an operator is kept with this, and is worth nothing once it is false. Before an
/// operator goes, the device's work is waited for: kernels on its streams hold the handle.
using StillDefined = std::shared_ptr<const std::atomic<bool>>;

/// True until `op`, as it is now, is removed. Threads: any.
StillDefined still_defined(const c10::OperatorHandle& op);

} // namespace torch_backend
