#include "csrc/core/DType.h"

#include <algorithm>

namespace torch_backend {
namespace {

constexpr c10::ScalarType kNameable[] = {
    c10::ScalarType::Bool,          c10::ScalarType::Byte,
    c10::ScalarType::Char,          c10::ScalarType::Short,
    c10::ScalarType::Int,           c10::ScalarType::Long,
    c10::ScalarType::UInt16,        c10::ScalarType::UInt32,
    c10::ScalarType::UInt64,        c10::ScalarType::Half,
    c10::ScalarType::BFloat16,      c10::ScalarType::Float,
    c10::ScalarType::Double,        c10::ScalarType::ComplexHalf,
    c10::ScalarType::ComplexFloat,  c10::ScalarType::ComplexDouble,
    c10::ScalarType::Float8_e4m3fn, c10::ScalarType::Float8_e4m3fnuz,
    c10::ScalarType::Float8_e5m2,   c10::ScalarType::Float8_e5m2fnuz,
};

std::optional<uint8_t> dlpack_code(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return TB_DTYPE_BOOL;
    case c10::ScalarType::Byte:
    case c10::ScalarType::UInt16:
    case c10::ScalarType::UInt32:
    case c10::ScalarType::UInt64:
      return TB_DTYPE_UINT;
    case c10::ScalarType::Char:
    case c10::ScalarType::Short:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
      return TB_DTYPE_INT;
    case c10::ScalarType::Half:
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
      return TB_DTYPE_FLOAT;
    case c10::ScalarType::BFloat16:
      return TB_DTYPE_BFLOAT;
    case c10::ScalarType::ComplexHalf:
    case c10::ScalarType::ComplexFloat:
    case c10::ScalarType::ComplexDouble:
      return TB_DTYPE_COMPLEX;
    case c10::ScalarType::Float8_e4m3fn:
      return TB_DTYPE_FLOAT8_E4M3FN;
    case c10::ScalarType::Float8_e4m3fnuz:
      return TB_DTYPE_FLOAT8_E4M3FNUZ;
    case c10::ScalarType::Float8_e5m2:
      return TB_DTYPE_FLOAT8_E5M2;
    case c10::ScalarType::Float8_e5m2fnuz:
      return TB_DTYPE_FLOAT8_E5M2FNUZ;
    default:
      return std::nullopt;
  }
}

static_assert(c10::NumScalarTypes <= 64, "scalar_types_in returns a bit for each");

} // namespace

const std::array<tb_dtype, c10::NumScalarTypes> detail::kDTypes = [] {
  std::array<tb_dtype, c10::NumScalarTypes> dtypes{};
  for (const auto type : kNameable) {
    dtypes[static_cast<std::size_t>(type)] = *to_tb_dtype(type);
  }
  return dtypes;
}();

uint64_t scalar_types_in(const uint64_t (&mask)[TB_DTYPE_MASK_WORDS]) {
  const bool every = std::all_of(std::begin(mask), std::end(mask), [](uint64_t word) { return word == 0; });
  uint64_t types = 0;
  for (const auto type : kNameable) {
    const tb_dtype dtype = *to_tb_dtype(type);
    if (every || (mask[TB_DTYPE_MASK_WORD(dtype.code, dtype.bits)] & TB_DTYPE_MASK_FLAG(dtype.code, dtype.bits))) {
      types |= uint64_t{1} << static_cast<unsigned>(type);
    }
  }
  return types;
}

std::optional<tb_dtype> to_tb_dtype(c10::ScalarType type) {
  const auto code = dlpack_code(type);
  if (!code) {
    return std::nullopt;
  }
  return tb_dtype{*code, static_cast<uint8_t>(c10::elementSize(type) * 8), 1};
}

std::optional<c10::ScalarType> to_scalar_type(tb_dtype dtype) {
  for (const auto type : kNameable) {
    const tb_dtype candidate = tb_dtype_or_none(type);
    if (candidate.code == dtype.code && candidate.bits == dtype.bits && dtype.lanes == 1) {
      return type;
    }
  }
  return std::nullopt;
}

std::vector<c10::ScalarType> supported_dtypes(const tb_device_properties& properties) {
  const uint64_t types = scalar_types_in(properties.dtype_mask);
  std::vector<c10::ScalarType> supported;
  for (const auto type : kNameable) {
    if (types >> static_cast<unsigned>(type) & 1) {
      supported.push_back(type);
    }
  }
  return supported;
}

} // namespace torch_backend
