// Random numbers of the device for CPU kernels.
#pragma once

#include <ATen/core/Generator.h>

#include "csrc/core/generator/PhiloxGenerator.h"

namespace torch_backend {

/// A CPU generator for one kernel: its numbers follow from the device generator's seed and offset, which moves on.
at::Generator draw_cpu_generator(PhiloxGenerator& generator);

} // namespace torch_backend
