// Running packages of AOTInductor: what GraphCall does for one graph that was compiled for the CPU, for one on disk.
#pragma once

namespace torch_backend {

/// Let PyTorch's loaders of packages, in Python and in C++, find what runs those for the active device. Part of activation.
/// One whose vendor has registered a runner of his own keeps that.
///
/// Note [Packages]
/// A package for the device is one for the CPU whose metadata, written by torch_backend/compile/package.py, names the device
/// and has what the code does not check: which inputs it was compiled for. It is run as a GraphCall, on the device that it
/// was loaded for: at once, after what is on the current stream, and it has finished when the call returns. Results are
/// memory of the device where the host and the device see the same, else copies. Constants lie where the code has put
/// them, in the host's memory, until load_constants has it share others (user_managed).
///
/// Threads: as with a package for the CPU, any may call it; as many run side by side as there are runners.
void register_package_runner();

} // namespace torch_backend
