#pragma once

#include <cstdint>

namespace torch_backend {

/// What the program allows kernels, as TB_MATH_*: PyTorch's own settings, of which it has one for all devices of a process.
/// Any thread.
uint32_t math_flags();

} // namespace torch_backend
