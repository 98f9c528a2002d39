// Running packages of AOTInductor.
#pragma once

namespace torch_backend {

/// Let PyTorch's loaders of packages, in Python and in C++, find what runs those for the active device. Part of activation.
/// One whose vendor has registered a runner of his own keeps that.
///
/// Note [Packages]
/// To PyTorch, a package for the device is one for the CPU. Its metadata, written by torch_backend/compile/package.py, name
/// the device and have what the code does not check: which inputs it was compiled for, and which of two ways it runs.
///
/// *Host.* The code is the CPU's, and is run as a GraphCall on memory that the host can access: at once, after what is on the
/// current stream, and it has finished when the call returns. Results are memory of the device where the host and the device
/// see the same, else copies. Constants lie where the code has put them, in the host's memory, until load_constants has it
/// share others (user_managed).
/// *Device.* The code calls operators of the device by PyTorch's dispatcher: torch_backend::launch for a kernel that
/// torch.compile wrote, which is compiled when it is first called. All of it goes onto the current stream. Constants are
/// copied to the device when the package is loaded.
///
/// Threads: as with a package for the CPU, any may call it; as many run side by side as there are runners.
void register_packages();

} // namespace torch_backend
