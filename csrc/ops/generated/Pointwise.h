// Kernels that compute each element of the output from those at its place.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/core/Stream.h"

namespace torch_backend::generated {

/// dst[...] = src[...] for tensors of one device and shape with any strides and dtypes, enqueued on `stream`; conj and neg
/// bits are taken into account. False, with nothing done: no modules, or dtypes that they do not take.
bool copy_elements(const at::Tensor& dst, const at::Tensor& src, const Stream& stream);

} // namespace torch_backend::generated
