// Numbers that ranges of tensors begin and end with.
#pragma once

#include <ATen/Dispatch.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

namespace torch_backend::compiled::ranges {

/// Raises as PyTorch does where a number does not fit a floating dtype.
inline void check_fits(const c10::Scalar& number, c10::ScalarType type) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "check_fits", [&] { number.to<scalar_t>(); });
}

} // namespace torch_backend::compiled::ranges
