#include "csrc/core/AddressSpace.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace torch_backend {

AddressSpace::AddressSpace() {
  std::ifstream maps("/proc/self/maps");
  const auto add = [](std::vector<Range>& ranges, Range range) {
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  };
  for (std::string line; std::getline(maps, line);) {
    Range range{};
    char access[5] = "";
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &range.begin, &range.end, access) != 3) {
      continue;
    }
    known_ = true;
    if (access[0] == 'r') {
      add(readable_, range);
    }
    if (access[2] == 'x') {
      add(code_, range);
    }
  }
}

std::size_t AddressSpace::extent(const std::vector<Range>& ranges, const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), at, [](uintptr_t at, const Range& r) { return at < r.begin; });
  return after == ranges.begin() || at >= (after - 1)->end ? 0 : (after - 1)->end - at;
}

bool AddressSpace::is_code(const void* address) const {
  return !known_ || extent(code_, address) > 0;
}

bool AddressSpace::is_readable(const void* address, std::size_t size_bytes) const {
  return !known_ || extent(readable_, address) >= size_bytes;
}

bool AddressSpace::is_string(const char* address) const {
  if (!known_) {
    return true;
  }
  const std::size_t room = extent(readable_, address);
  return room > 0 && ::strnlen(address, room) < room;
}

} // namespace torch_backend
