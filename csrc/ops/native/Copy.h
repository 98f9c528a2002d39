// Copies between tensors of the device, and between device and host.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

/// dst[...] = src[...] with conversion and broadcasting; at least one of them is on the device. With `non_blocking` a
/// copy from or to page-locked memory may still run when this returns.
void copy_tensor(const at::Tensor& dst, const at::Tensor& src, bool non_blocking);

} // namespace torch_backend
