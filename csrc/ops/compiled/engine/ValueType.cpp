#include "csrc/ops/compiled/engine/ValueType.h"

#include <algorithm>
#include <iterator>

namespace torch_backend::compiled {
namespace {

struct Named {
  ValueType type;
  uint8_t code;
  uint8_t bits;
};

/// In the order of ValueType, without w128.
constexpr Named kTypes[] = {
    {ValueType::b8, TB_DTYPE_BOOL, 8},
    {ValueType::u8, TB_DTYPE_UINT, 8},
    {ValueType::i8, TB_DTYPE_INT, 8},
    {ValueType::i16, TB_DTYPE_INT, 16},
    {ValueType::i32, TB_DTYPE_INT, 32},
    {ValueType::i64, TB_DTYPE_INT, 64},
    {ValueType::u16, TB_DTYPE_UINT, 16},
    {ValueType::u32, TB_DTYPE_UINT, 32},
    {ValueType::u64, TB_DTYPE_UINT, 64},
    {ValueType::f16, TB_DTYPE_FLOAT, 16},
    {ValueType::bf16, TB_DTYPE_BFLOAT, 16},
    {ValueType::f32, TB_DTYPE_FLOAT, 32},
    {ValueType::f64, TB_DTYPE_FLOAT, 64},
    {ValueType::c32, TB_DTYPE_COMPLEX, 32},
    {ValueType::c64, TB_DTYPE_COMPLEX, 64},
    {ValueType::c128, TB_DTYPE_COMPLEX, 128},
    {ValueType::e4m3fn, TB_DTYPE_FLOAT8_E4M3FN, 8},
    {ValueType::e4m3fnuz, TB_DTYPE_FLOAT8_E4M3FNUZ, 8},
    {ValueType::e5m2, TB_DTYPE_FLOAT8_E5M2, 8},
    {ValueType::e5m2fnuz, TB_DTYPE_FLOAT8_E5M2FNUZ, 8},
};

template <class Has>
constexpr TypeMask mask_of_types(Has has) {
  TypeMask mask{};
  for (const auto& type : kTypes) {
    if (!is_float8(type.type) && has(type.type)) {
      mask[TB_DTYPE_MASK_WORD(type.code, type.bits)] |= TB_DTYPE_MASK_FLAG(type.code, type.bits);
    }
  }
  return mask;
}

constexpr std::size_t kCodes = TB_DTYPE_FLOAT8_E5M2FNUZ + 1;
constexpr std::size_t kSizes = 17; // bytes, and no bytes

constexpr std::array<std::array<ValueType, kSizes>, kCodes> types_by_dtype() {
  std::array<std::array<ValueType, kSizes>, kCodes> types{};
  for (auto& sizes : types) {
    sizes.fill(ValueType::none);
  }
  for (const auto& type : kTypes) {
    types[type.code][type.bits / 8] = type.type;
  }
  return types;
}
constexpr auto kTypesByDtype = types_by_dtype();

} // namespace

const TypeMask kCommonTypes = mask_of_types([](ValueType type) { return is_common(type); });
const TypeMask kRealTypes = mask_of_types([](ValueType type) { return !is_complex(type); });
const TypeMask kComplexTypes = mask_of_types([](ValueType type) {
  const auto has_part = [&](const Named& each) { return part_type(each.type) == type; };
  return is_floating(type) ? std::count_if(std::begin(kTypes), std::end(kTypes), has_part) > 1 : is_complex(type);
});
const TypeMask kAllTypes = mask_of_types([](ValueType) { return true; });

ValueType value_type(tb_dtype dtype) {
  const std::size_t bytes = dtype.bits / 8;
  return dtype.code < kCodes && bytes < kSizes && dtype.bits % 8 == 0 && dtype.lanes == 1
             ? kTypesByDtype[dtype.code][bytes]
             : ValueType::none;
}

tb_dtype dtype_of(ValueType type) {
  const auto& found = kTypes[static_cast<std::size_t>(type)];
  return {found.code, found.bits, 1};
}

std::size_t size_of(ValueType type) {
  return type == ValueType::w128 ? 16 : kTypes[static_cast<std::size_t>(type)].bits / 8;
}

const char* name_of(ValueType type) {
  static constexpr const char* kNames[] = {"b8",  "u8",   "i8",     "i16",      "i32",  "i64",      "u16",
                                           "u32", "u64",  "f16",    "bf16",     "f32",  "f64",      "c32",
                                           "c64", "c128", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "w128"};
  return type == ValueType::none ? "" : kNames[static_cast<int>(type)];
}

} // namespace torch_backend::compiled
