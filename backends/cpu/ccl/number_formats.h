// How numbers are stored, and as what they are computed with.
//
// Without branches, so that the compiler can use vector instructions.
#pragma once

#include <cstdint>
#include <cstring>

namespace xcpu::ccl {

template <typename To, typename From>
inline To bits_of(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Integers in the widest type, which holds what does not fit into their own on the way.
template <typename T, typename Wide = T>
struct plain {
  using stored = T;
  using accumulator = Wide;
  static Wide load(T value) {
    return value;
  }
  static T store(Wide value) {
    return static_cast<T>(value);
  }
};

struct boolean : plain<uint8_t> {
  static uint8_t load(uint8_t value) {
    return value != 0;
  }
};

struct bfloat16 {
  using stored = uint16_t;
  using accumulator = float;
  static float load(uint16_t value) {
    return bits_of<float>(static_cast<uint32_t>(value) << 16);
  }
  static uint16_t store(float value) {
    const auto bits = bits_of<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40; // a NaN that stays one
    return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  }
};

struct half {
  using stored = uint16_t;
  using accumulator = float;
  static float load(uint16_t value) {
    const uint32_t magnitude = value & 0x7fffu, sign = (value & 0x8000u) << 16;
    const uint32_t normal = (magnitude << 13) + (112u << 23); // the exponents' biases are 15 and 127
    const uint32_t special = magnitude << 13 | 0x7f800000;
    const auto subnormal = bits_of<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
    const uint32_t bits = magnitude < 0x400 ? subnormal : magnitude < 0x7c00 ? normal : special;
    return bits_of<float>(bits | sign);
  }
  static uint16_t store(float value) {
    const auto bits = bits_of<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Between 0.5 and 1 a float's last bit is worth 2^-24, as a subnormal half's is: the addition rounds.
    const uint32_t subnormal = bits_of<uint32_t>(bits_of<float>(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    const uint32_t rounded = magnitude < 0x38800000 ? subnormal : magnitude < 0x47800000 ? normal : special;
    return static_cast<uint16_t>(rounded | sign);
  }
};

} // namespace xcpu::ccl
