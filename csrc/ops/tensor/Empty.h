// New tensors of the device and the host, without contents, made beside the dispatcher: what the core makes for itself
// is no operation of the user's, so modes, fake tensors, functorch and profilers do not get it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace torch_backend {

/// The new `tensor`, filled if torch.use_deterministic_algorithms asks for memory that is not left uninitialized.
at::Tensor filled_if_deterministic(at::Tensor tensor);

/// An uninitialized tensor on `device` of ours; `strides` in elements, of memory without gaps.
at::Tensor empty_on_device(c10::DeviceIndex device, at::IntArrayRef sizes, at::IntArrayRef strides,
                           c10::ScalarType dtype);

/// An uninitialized tensor on `device`, ours or the CPU, with the sizes, strides and dtype of `like` (dense strides if
/// it is not). On the CPU its memory is the host's own: see Note [Redirected CPU allocations].
at::Tensor empty_like_layout(const at::Tensor& like, c10::Device device);

} // namespace torch_backend
