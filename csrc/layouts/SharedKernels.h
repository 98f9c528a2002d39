// PyTorch's kernels for layouts that are the same on every device.
#pragma once

#include <string_view>

#include <c10/core/DispatchKey.h>

namespace torch_backend {

/// Note [Kernels that know no device]
/// Most of PyTorch's kernels for sparse and nested tensors are registered for CPU and CUDA alike: they read sizes and
/// flags, take tensors apart or put them together, and leave the numbers to operators on the parts. Such a kernel, called
/// with tensors of the device, calls those operators on the device: nothing crosses to the CPU, so these are no
/// fallbacks. They are found where PyTorch registers them for the CPU.
///
/// Whether `overload` ("sin.out") has such a kernel for the layout of `key`, one of kLayoutKeys. False for kernels that
/// are shared but ask for a stub of the device.
bool has_shared_kernel(c10::DispatchKey key, std::string_view overload);

} // namespace torch_backend
