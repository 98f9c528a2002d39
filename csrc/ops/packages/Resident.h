// Constants of a package's code that lie on the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend::packages {

/// Note [Resident constants]
/// AOTInductor's code for the CPU takes constants on the CPU alone. So where the code calls the device's operators, what it
/// has for a constant is a stand-in: a CPU tensor of the same form without elements that could be read, whose storage has
/// the tensor on the device. torch_backend::resident, which the code calls first, returns that.
struct Resident {
  at::Tensor tensor;
  bool owned; // nobody else has it

  /// What stands in for `tensor`.
  static at::Tensor stand_in(at::Tensor tensor, bool owned);
  /// What `host` stands in for; NULL if it is no stand-in.
  static Resident* of(const at::Tensor& host);
};

} // namespace torch_backend::packages
