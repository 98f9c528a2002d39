// Registers kernels so that everybody else's come first and every kernel says where it comes from.
#pragma once

#include <utility>

#include <torch/library.h>

#include "csrc/aten/OperatorTable.h"

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

  /// `overload` without namespace ("add.Tensor"); `kernel` is anything that torch::CppFunction is made from. Does
  /// nothing where the overload has a kernel for the key already.
  template <class Kernel>
  void impl(const char* overload, Kernel&& kernel, Source source = Source::kNative) {
    if (!is_taken(overload)) {
      library_.impl(overload, torch::CppFunction(std::forward<Kernel>(kernel)).debug(registration_label(source)));
    }
  }

 private:
  bool is_taken(const char* overload) const;

  c10::DispatchKey key_;
  torch::Library& library_;
};

/// A library whose registrations last until the process ends, as the device does.
torch::Library& new_library(const char* ns, c10::DispatchKey key);

/// PyTorch warns, once per process, when a kernel replaces another. Ours are there to be replaced: from here on nothing
/// is said, unless torch.set_warn_always is on.
void expect_overrides();

} // namespace torch_backend
