// Tensors that are made of a range or of ones on the diagonal.
#pragma once

#include <ATen/Dispatch.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

namespace torch_backend {

class Registrar;

namespace compiled {

/// Nothing if the device takes no modules.
void register_ranges(Registrar& m);

/// Raises as PyTorch does where a number does not fit a floating dtype.
inline void check_fits(const c10::Scalar& number, c10::ScalarType type) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "check_fits", [&] { number.to<scalar_t>(); });
}

} // namespace compiled
} // namespace torch_backend
