// Dtypes as compiled kernels name them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// Those of eight bits and an exponent are converted, and computed with in f32. w128 is no dtype's: 16 bytes that are moved
/// as they are.
enum class ValueType : uint8_t {
  b8,
  u8,
  i8,
  i16,
  i32,
  i64,
  u16,
  u32,
  u64,
  f16,
  bf16,
  f32,
  f64,
  c32,
  c64,
  c128,
  e4m3fn,
  e4m3fnuz,
  e5m2,
  e5m2fnuz,
  w128,
  none
};

ValueType value_type(tb_dtype dtype);
/// The other way.
tb_dtype dtype_of(ValueType type);
std::size_t size_of(ValueType type);

/// "f32", the end of TB_LOAD_f32.
const char* name_of(ValueType type);

/// float8: numbers that copies convert, and no other kernel takes.
inline bool is_float8(ValueType type) {
  return type >= ValueType::e4m3fn && type <= ValueType::e5m2fnuz;
}

/// What kernels compute in where values are of `type`: f32 for the half types and float8, i32 for the small integers and
/// bool, i64 for u32, c64 for complex numbers of halves.
inline ValueType compute_type(ValueType type) {
  switch (type) {
    case ValueType::b8:
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::i16:
    case ValueType::u16:
      return ValueType::i32;
    case ValueType::u32:
      return ValueType::i64;
    case ValueType::f16:
    case ValueType::bf16:
    case ValueType::e4m3fn:
    case ValueType::e4m3fnuz:
    case ValueType::e5m2:
    case ValueType::e5m2fnuz:
      return ValueType::f32;
    case ValueType::c32:
      return ValueType::c64;
    default:
      return type;
  }
}

inline bool is_floating(ValueType type) {
  return type >= ValueType::f16 && type <= ValueType::f64;
}

inline bool is_complex(ValueType type) {
  return type >= ValueType::c32 && type <= ValueType::c128;
}

/// What so many bytes are moved as, a power of two of at most 16.
inline ValueType word_type(int bytes) {
  return bytes == 1   ? ValueType::i8
         : bytes == 2 ? ValueType::i16
         : bytes == 4 ? ValueType::i32
         : bytes == 8 ? ValueType::i64
                      : ValueType::w128;
}

/// Of the parts of a complex number; of others itself.
inline ValueType part_type(ValueType type) {
  switch (type) {
    case ValueType::c32:
      return ValueType::f16;
    case ValueType::c64:
      return ValueType::f32;
    case ValueType::c128:
      return ValueType::f64;
    default:
      return type;
  }
}

/// Whether all kernels take it. Those that take more are added with kAllTypes.
inline bool is_common(ValueType type) {
  return type <= ValueType::i64 || is_floating(type);
}

/// As a dtype_mask, those of all that are not complex, of complex numbers and their parts, and of all, but for float8.
using TypeMask = std::array<uint64_t, TB_DTYPE_MASK_WORDS>;
extern const TypeMask kCommonTypes;
extern const TypeMask kRealTypes;
extern const TypeMask kComplexTypes;
extern const TypeMask kAllTypes;

} // namespace torch_backend::compiled
