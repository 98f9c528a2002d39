// Registers kernels so that everybody else's come first and every kernel says where it comes from.
#pragma once

#include <type_traits>
#include <utility>

#include <torch/library.h>

#include "csrc/ops/dispatch/NextSource.h"
#include "csrc/ops/dispatch/OperatorTable.h"

namespace torch_backend {

/// The device's kernels for one dispatch key of the `aten` operators.
///
/// Note [Whose kernel wins]
/// Whoever comes first keeps an overload: what an extension registered before the device was activated, then the
/// plugin's kernels, ours, and those generated over ATen's. What is registered after activation replaces any of these,
/// as the dispatcher has it. The registration's label, which the dispatcher keeps, tells the source (OperatorTable).
class Registrar {
 public:
  explicit Registrar(c10::DispatchKey key);

  /// `overload` without namespace ("add.Tensor"); `kernel` is TORCH_FN(function), or a function pointer, for which PyTorch's
  /// wrappers are compiled once a signature instead of once a function, and a call is one jump more. Where the overload
  /// has a kernel for the key already it is kept as that one's next source if that is the plugin's (Note [Next source]),
  /// and not used otherwise.
  template <class Kernel>
  void impl(const char* overload, Kernel&& kernel, Source source = Source::kNative) {
    if (!is_taken(overload)) {
      library_.impl(overload, torch::CppFunction(std::forward<Kernel>(kernel)).debug(registration_label(source)));
    } else if (auto* plugin_kernel = plugin_kernel_of(overload)) {
      plugin_kernel->keep(kernel_function(std::forward<Kernel>(kernel)));
    }
  }

  /// The same for a boxed function: void(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*).
  template <c10::KernelFunction::BoxedKernelFunction_withDispatchKeys* kernel>
  void impl_boxed(const char* overload, Source source = Source::kNative) {
    if (!is_taken(overload)) {
      library_.impl(overload, torch::CppFunction::makeFromBoxedFunction<kernel>().debug(registration_label(source)));
    } else if (auto* plugin_kernel = plugin_kernel_of(overload)) {
      plugin_kernel->keep(c10::KernelFunction::makeFromBoxedFunction<kernel>());
    }
  }

  /// Whether the overload has a kernel for the key: before ours is registered, somebody else's.
  bool is_taken(const char* overload) const;

 private:
  template <class Kernel>
  static c10::KernelFunction kernel_function(Kernel&& kernel) {
    if constexpr (c10::is_compile_time_function_pointer<std::decay_t<Kernel>>::value) {
      return c10::KernelFunction::makeFromUnboxedFunction(std::forward<Kernel>(kernel));
    } else {
      return c10::KernelFunction::makeFromUnboxedRuntimeFunction(kernel);
    }
  }
  /// NULL unless the plugin's kernel has the place.
  NextSource* plugin_kernel_of(const char* overload) const;

  c10::DispatchKey key_;
  torch::Library& library_;
};

/// A library whose registrations last until the process ends, as the device does.
torch::Library& new_library(const char* ns, c10::DispatchKey key);

/// Let `kernel` serve every operator that has none for `key`. Whose fallback an extension has registered for the key before
/// is kept in its place.
void register_fallback(c10::DispatchKey key, torch::CppFunction&& kernel);

/// Whether an extension's fallback was kept.
bool has_foreign_fallback(c10::DispatchKey key);

} // namespace torch_backend
