// How numbers are stored, and as what they are computed with: blocks of elements to and from their accumulator.
//
// Loops without branches, over blocks of a size known to the compiler, so that it can use vector instructions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace xcpu::ccl {

template <typename To, typename From>
inline To bits_of(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Integers in a wider type, for what does not fit into their own on the way.
template <typename T, typename Wide>
struct widened {
  using stored = T;
  using accumulator = Wide;
  static Wide load(T value) {
    return value;
  }
  static T store(Wide value) {
    return static_cast<T>(value);
  }
};

// Stored as what it is computed in.
template <typename T>
using plain = widened<T, T>;

struct boolean {
  using stored = uint8_t;
  using accumulator = uint8_t;
  static uint8_t load(uint8_t value) {
    return value != 0;
  }
  static uint8_t store(uint8_t value) {
    return value;
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

// One byte: sign, exponent, mantissa. `Finite`: there are no infinities. `UnsignedZero`: 0x80 is the only NaN, and there is
// no -0. What is too large becomes infinity, where there is none NaN, and of e4m3fn the largest number, as in PyTorch.
template <int ExponentBits, int MantissaBits, int Bias, bool Finite, bool UnsignedZero>
struct float8 {
  using stored = uint8_t;
  using accumulator = float;

  static float load(uint8_t value) {
    return table().values[value];
  }

  // To the nearest, of two as near to the one with an even code.
  static uint8_t store(float value) {
    const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
    if (std::isnan(value)) return static_cast<uint8_t>(kNan | (UnsignedZero ? 0 : sign));
    const float magnitude = std::fabs(value);
    const float* values = table().values;
    int low = 0, high = kLargest + 1; // values[low] <= magnitude; kLargest + 1 stands for what is too large
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (values[middle] <= magnitude ? low : high) = middle;
    }
    const float next = high > kLargest ? 2 * values[kLargest] - values[kLargest - 1] : values[high];
    const double middle = (static_cast<double>(values[low]) + next) / 2;
    const bool up = magnitude > middle || (magnitude == middle && low % 2 == 1);
    const int code = up ? high : low;
    if (code > kLargest) return static_cast<uint8_t>(UnsignedZero ? kNan : (Finite ? kLargest : kInfinity) | sign);
    return static_cast<uint8_t>(UnsignedZero && code == 0 ? 0 : code | sign);
  }

 private:
  static constexpr int kInfinity = ((1 << ExponentBits) - 1) << MantissaBits; // unless Finite
  static constexpr int kNan = UnsignedZero ? 0x80 : 0x7f;
  static constexpr int kLargest = UnsignedZero ? 0x7f : Finite ? 0x7e : kInfinity - 1;

  struct decoded {
    float values[256];
    decoded() {
      for (int code = 0; code < 256; ++code) values[code] = decode(code);
    }
  };
  static const decoded& table() {
    static const decoded d;
    return d;
  }
  static float decode(int code) {
    if (UnsignedZero && code == 0x80) return std::numeric_limits<float>::quiet_NaN();
    const int magnitude = code & 0x7f;
    const float sign = code & 0x80 ? -1.0f : 1.0f;
    if (!UnsignedZero && magnitude > kLargest)
      return magnitude == kInfinity && !Finite ? sign * std::numeric_limits<float>::infinity()
                                               : std::numeric_limits<float>::quiet_NaN();
    const int exponent = magnitude >> MantissaBits, mantissa = magnitude & ((1 << MantissaBits) - 1);
    const int significand = exponent == 0 ? mantissa : mantissa | 1 << MantissaBits;
    return sign * std::ldexp(static_cast<float>(significand), (exponent == 0 ? 1 : exponent) - Bias - MantissaBits);
  }
};

using float8_e4m3fn = float8<4, 3, 7, true, false>;
using float8_e4m3fnuz = float8<4, 3, 8, true, true>;
using float8_e5m2 = float8<5, 2, 15, false, false>;
using float8_e5m2fnuz = float8<5, 2, 16, true, true>;

template <typename Real>
struct complex_number {
  using accumulator_part = typename Real::accumulator;
  struct stored {
    typename Real::stored real, imaginary;
  };
  struct accumulator {
    accumulator_part real, imaginary;
  };
  static accumulator load(stored value) {
    return {Real::load(value.real), Real::load(value.imaginary)};
  }
  static stored store(accumulator value) {
    return {Real::store(value.real), Real::store(value.imaginary)};
  }
};

} // namespace xcpu::ccl
