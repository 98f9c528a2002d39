// Dtypes as generated kernels name them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "torch_backend/device.h"

namespace torch_backend::generated {

enum class ValueType : uint8_t { b8, u8, i8, i16, i32, i64, f16, bf16, f32, f64, none };

ValueType value_type(tb_dtype dtype);
/// The other way.
tb_dtype dtype_of(ValueType type);
std::size_t size_of(ValueType type);

/// "f32", the end of TB_LOAD_f32.
const char* name_of(ValueType type);

/// What kernels compute in where values are of `type`: f32 for the half types, i32 for the small integers and bool.
inline ValueType compute_type(ValueType type) {
  switch (type) {
    case ValueType::b8:
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::i16:
      return ValueType::i32;
    case ValueType::f16:
    case ValueType::bf16:
      return ValueType::f32;
    default:
      return type;
  }
}

inline bool is_floating(ValueType type) {
  return type >= ValueType::f16 && type <= ValueType::f64;
}

/// The dtypes that kernels load and store, as a dtype_mask.
extern const std::array<uint64_t, TB_DTYPE_MASK_WORDS> kValueTypes;

} // namespace torch_backend::generated
