// Registering the kernels of KernelTable with the dispatcher.
#pragma once

#include <string>
#include <vector>

namespace torch_backend {

/// Register what the table has for every operator that is defined: first of all sources, from activate. Warns of
/// kernels that the installed PyTorch has no operator for. Operators that somebody has a kernel for keep it.
void register_kernels();

/// Register the plugin's kernel for an overload ("acme::scale", "acme::scale.out") that was defined after activation, and
/// for the other forms of that operator. Returns the overloads that it serves from now on; none if it did before.
/// Throws ValueError if no such operator is defined, if the plugin has no kernel for it, or if no kernel can serve it,
/// and RuntimeError if no device is active or somebody else's kernel is registered.
std::vector<std::string> register_kernel(const std::string& overload);

} // namespace torch_backend
