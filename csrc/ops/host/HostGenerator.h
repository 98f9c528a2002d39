// Random numbers of the device for CPU kernels.
#pragma once

#include <cstdint>
#include <limits>

#include <ATen/core/Generator.h>

#include "csrc/core/generator/PhiloxGenerator.h"

namespace torch_backend {

/// A CPU generator for one kernel: its numbers follow from the device generator's seed and offset, which moves on. Of the
/// words of 32 bits that can be drawn from it, those after the first `words` need not follow from them.
at::Generator draw_cpu_generator(PhiloxGenerator& generator, int64_t words = std::numeric_limits<int64_t>::max());

} // namespace torch_backend
