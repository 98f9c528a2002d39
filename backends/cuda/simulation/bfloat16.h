// The 16 bits of a bfloat16, rounded to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

namespace sim {

struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value) {
    uint32_t all = 0;
    std::memcpy(&all, &value, sizeof all);
    bits = value != value ? 0x7fc0 : static_cast<uint16_t>((all + 0x7fff + (all >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    const uint32_t all = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &all, sizeof value);
    return value;
  }
};

} // namespace sim
