// Norms and distances of vectors.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace torch_backend::compiled::distances {

/// Each slice of `self` along `dim` scaled so that its p-norm is not over `maxnorm`, contiguous.
at::Tensor limited_norm(const at::Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& maxnorm);

} // namespace torch_backend::compiled::distances
