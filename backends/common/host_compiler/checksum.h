// A number that tells texts and files apart.
#pragma once

#include <cstdint>
#include <string_view>

namespace plugin {

// FNV-1a. `before` is that of what comes before.
inline uint64_t checksum(std::string_view of, uint64_t before = 0xcbf29ce484222325ull) {
  for (const char each : of) before = (before ^ static_cast<unsigned char>(each)) * 0x100000001b3ull;
  return before;
}

} // namespace plugin
