#include "csrc/core/TableCheck.h"

#include <algorithm>
#include <cstring>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace torch_backend {
namespace {

constexpr std::size_t kMostFaults = 12;

} // namespace

void TableCheck::read(const void* offered, void* out_table, uint64_t size_bytes, uint64_t least_bytes) {
  uint64_t filled = 0;
  if (!memory_.is_readable(offered, sizeof(filled))) {
    return add(c10::str("it is at ", offered, ", where there is no memory"));
  }
  std::memcpy(&filled, offered, sizeof(filled));
  if (filled < least_bytes) {
    return add(c10::str("its struct_size is ", filled, ", too small; set struct_size to the sizeof of the table"));
  }
  filled = std::min(filled, size_bytes);
  if (!memory_.is_readable(offered, filled)) {
    return add(c10::str("it is at ", offered, ", where there are no ", filled, " bytes of memory"));
  }
  std::memcpy(out_table, offered, filled);
}

void TableCheck::require(Slots slots) {
  for (const auto& [name, address] : slots) {
    if (!address) {
      add(c10::str("the required slot ", name, " is not set"));
    }
  }
}

void TableCheck::all_or_none(Slots slots, const char* why) {
  std::vector<std::string> set;
  std::vector<std::string> unset;
  for (const auto& [name, address] : slots) {
    (address ? set : unset).emplace_back(name);
  }
  if (!set.empty() && !unset.empty()) {
    add(c10::str(why, ": ", c10::Join(", ", set), " set, but ", c10::Join(", ", unset), " not"));
  }
}

void TableCheck::are_code(Slots slots) {
  for (const auto& [name, address] : slots) {
    if (address && !memory_.is_code(address)) {
      add(c10::str("the slot ", name, " points at ", address,
                   ", where there is no code; is struct_size the sizeof of this table?"));
    }
  }
}

void TableCheck::raise(const std::string& table) const {
  // A wrong number of kernels makes a fault of each that is not there.
  const auto num_told = std::min(faults_.size(), kMostFaults);
  const std::vector<std::string> told(faults_.begin(), faults_.begin() + static_cast<std::ptrdiff_t>(num_told));
  const auto rest = faults_.size() - num_told;
  TORCH_CHECK_VALUE(faults_.empty(), table, " is not usable: ", c10::Join("; ", told),
                    rest > 0 ? c10::str("; and ", rest, " more faults") : "",
                    ". See torch_backend/device.h for what each slot must do.");
}

} // namespace torch_backend
