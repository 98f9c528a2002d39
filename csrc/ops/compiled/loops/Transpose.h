// Copies between tensors that lie along different dimensions.
#pragma once

#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/ValueType.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// Copies elements of `type` as they are, by squares. `geometry` is of dst and src, in this order. False, and nothing is done,
/// where both lie along the same dimension, where one does not lie along any, or where there is too little for a square.
bool transpose(const tb_kernel_context& context, const Geometry& geometry, const tb_tensor& dst, const tb_tensor& src,
               ValueType type);

} // namespace torch_backend::compiled
