// Copies that the device does by itself, and what is made of them: a tensor's values on the host.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "csrc/core/Stream.h"

namespace torch_backend {

inline bool on_device(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

/// Its first element, to be written or not.
inline char* data_of(const at::Tensor& tensor) {
  return static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()));
}

inline int index_of(const at::Tensor& tensor) {
  return tensor.device().index();
}

/// `host` with the conj and neg bits of `tensor`.
at::Tensor with_bits_of(at::Tensor host, const at::Tensor& tensor);

/// Whether one copy of bytes does: same dtype, strides and bits, without gaps.
bool is_plain_copy(const at::Tensor& dst, const at::Tensor& src);

/// Whether a copy between them changes nothing: the same elements in the same places.
bool are_same_elements(const at::Tensor& a, const at::Tensor& b);

/// Whether an element of one may lie on another element of the other, of tensors of the same sizes: true unless it is
/// seen that none does. PyTorch refuses what it sees to overlap, and lets pass what it cannot tell; a device's copies
/// and kernels take memory that lies apart, or one element for one.
bool may_overlap(const at::Tensor& a, const at::Tensor& b);

/// Enqueue the copy as a one or two-dimensional plugin copy of `kind` (TB_COPY_...). False, with nothing done, if it is not
/// of that form, or if the side that is called the host's lies in device memory. Where a plugin copies one row a call,
/// many rows that lie near each other are left to other ways to copy unless `row_by_row`, but for a capture, which has no
/// other. `device` owns the stream.
bool enqueue_raw_copy(const at::Tensor& dst, const at::Tensor& src, uint32_t kind, int device, const Stream& stream,
                      bool row_by_row = false);

/// Call `use`, which enqueues copies on `stream` that use memory which the stream does not own: the host's or another
/// device's, so that the memory outlives what it had enqueued if it fails. See Note [Failed waits].
void use_on_stream(const Stream& stream, const at::Tensor& memory, c10::function_ref<void()> use);

/// Enqueue the copy if it is a raw one, and keep `host`, which is one of its sides, from being used again before it is
/// over: by waiting if `wait` or if it is not page-locked.
bool try_host_copy(const at::Tensor& dst, const at::Tensor& src, uint32_t kind, const Stream& stream,
                   const at::Tensor& host, bool wait, bool row_by_row = false);

/// A CPU tensor with the values of `device_tensor`, same sizes, dtype and (if dense) strides, complete on return.
/// Always a copy through the plugin.
at::Tensor copy_to_host(const at::Tensor& device_tensor);

/// device_tensor[...] = host_tensor[...], same sizes and dtype, any strides. Complete on return. Always through the
/// plugin. Returns the bytes that were moved.
uint64_t copy_from_host(const at::Tensor& host_tensor, const at::Tensor& device_tensor);

} // namespace torch_backend
