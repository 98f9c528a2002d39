// Limits of the device ABI.
#pragma once

namespace torch_backend {

/// Most devices that a plugin may report.
constexpr int kMaxDevices = 64;

} // namespace torch_backend
