// The kernels that devices compile, by family: a namespace each, whose `add` names its kernels.
#pragma once

#include <string>
#include <vector>

namespace torch_backend::compiled {

/// Once, when the device is activated, after set_kernels: what the plugin has no kernel for is served by one of
/// these, and so is what its kernel refuses. Nothing if the device takes no modules.
void load_kernels();

/// What there are kernels for, whether or not the active device takes modules: as a plugin would name them, sorted.
std::vector<std::string> overloads();

} // namespace torch_backend::compiled
