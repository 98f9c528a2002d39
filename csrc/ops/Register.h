// All operator registrations of the active device.
#pragma once

namespace torch_backend {

/// Register the operators of every floor with the dispatcher. Once, from activate.
void register_operators();

} // namespace torch_backend
