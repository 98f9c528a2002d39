// The random numbers of a dropout.
#pragma once

#include <cstdint>

#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// What a 32-bit number is below with probability `p`.
int64_t below_with_probability(double p);

/// A call's place in the stream of the device's default generator, which goes on to the next. Throws, and fails the
/// capture, if the stream takes part in one: every replay would drop the same.
tb_philox draw_for_dropout(const tb_kernel_context& context);

} // namespace torch_backend::compiled
