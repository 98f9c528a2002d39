// Giving PyTorch the active plugin's devices.
#pragma once

#include "csrc/core/Plugin.h"

namespace torch_backend {

/// Make `plugin` the device behind PrivateUse1: names it, and registers guard, hooks, allocators, generator and
/// operators with PyTorch. Once per process; the same plugin again is a no-op. Throws RuntimeError if another one is
/// active (naming both), if another extension has named PrivateUse1 or registered its generator, or if the plugin has no
/// devices, and ValueError if one of its tables is malformed; PyTorch is then as it was. Does not initialize the plugin.
/// Threads: any.
void activate(Plugin& plugin);

} // namespace torch_backend
