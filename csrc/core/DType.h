// Between PyTorch's scalar types and the ABI's dtypes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <c10/core/ScalarType.h>

#include "torch_backend/device.h"

namespace torch_backend {

namespace detail {
extern const std::array<tb_dtype, c10::NumScalarTypes> kDTypes;
} // namespace detail

/// NULL option for scalar types that DLPack cannot name (quantized ones).
std::optional<tb_dtype> to_tb_dtype(c10::ScalarType type);

/// The other way; nothing for what PyTorch has no scalar type for.
std::optional<c10::ScalarType> to_scalar_type(tb_dtype dtype);

/// The dtypes that a dtype_mask of the ABI names, a bit per c10::ScalarType. A mask without a bit names all of them.
uint64_t scalar_types_in(const uint64_t (&mask)[TB_DTYPE_MASK_WORDS]);

/// Without the option, for paths that run per call; `bits` is 0 where there is no such dtype.
inline tb_dtype tb_dtype_or_none(c10::ScalarType type) {
  return detail::kDTypes[static_cast<std::size_t>(type)];
}

/// What a device declares: the scalar types whose bit is set in its dtype_mask, or every nameable one if no bit is.
std::vector<c10::ScalarType> supported_dtypes(const tb_device_properties& properties);

} // namespace torch_backend
