// Copies between tensors of the device, and between device and host.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

/// dst[...] = src[...] with conversion and broadcasting; at least one of them is on the device. With `non_blocking` a
/// copy from or to page-locked memory may still run when this returns.
void copy_tensor(const at::Tensor& dst, const at::Tensor& src, bool non_blocking);

/// A CPU tensor with the values of `device_tensor`, same sizes, dtype and (if dense) strides, complete on return.
/// Always a copy through the plugin.
at::Tensor copy_to_host(const at::Tensor& device_tensor);

/// device_tensor[...] = host_tensor[...], same sizes and dtype, any strides. Complete on return. Always through the
/// plugin. Returns the bytes that were moved.
uint64_t copy_from_host(const at::Tensor& host_tensor, const at::Tensor& device_tensor);

} // namespace torch_backend
