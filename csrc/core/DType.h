// Between PyTorch's scalar types and the ABI's dtypes.
#pragma once

#include <optional>
#include <vector>

#include <c10/core/ScalarType.h>

#include "torch_backend/device.h"

namespace torch_backend {

/// NULL option for scalar types that DLPack cannot name (quantized ones).
std::optional<tb_dtype> to_tb_dtype(c10::ScalarType type);

/// What a device declares: the scalar types whose bit is set in its dtype_mask, or every nameable one if no bit is.
std::vector<c10::ScalarType> supported_dtypes(const tb_device_properties& properties);

} // namespace torch_backend
