// What serves an operator when the plugin's kernel does not.
#pragma once

#include <string>
#include <utility>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_backend {

/// Note [Next source]
/// A plugin's kernel may refuse a call. What then serves it is what would have served it without the plugin: a kernel
/// of ours or over ATen, which finds its place taken when it is registered and is kept here instead; else the
/// operator's composite kernel; else the CPU fallback. It gets the arguments as they came.
class NextSource {
 public:
  /// The first one stays.
  void keep(c10::KernelFunction kernel) {
    if (!kernel_.isValid()) {
      kernel_ = std::move(kernel);
    }
  }
  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const;

 private:
  c10::KernelFunction kernel_;
};

/// The next source after the plugin's kernel for an overload ("aten::add.out"), to be registered with it; lives until
/// the process ends.
NextSource& add_next_source(const std::string& overload);

/// What serves every operator that nothing else serves. Once, before the first call.
void set_last_source(c10::KernelFunction kernel);

/// NULL if no kernel of the plugin is registered for the overload.
NextSource* find_next_source(const std::string& overload);

} // namespace torch_backend
