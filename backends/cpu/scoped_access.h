// Access of the device's own work to memory that the host may not touch.
#pragma once

#include <cstdint>

#include "allocation.h"
#include "options.h"
#include "result.h"

namespace xcpu {

// The "device" of host memory.
constexpr int32_t kHostSide = -1;

// In protected mode makes a range of device memory accessible while it lives; else, and for host memory, does nothing.
class scoped_access {
 public:
  scoped_access(int32_t device, const void* ptr, uint64_t size_bytes, uint32_t access)
      : device_(device), ptr_(ptr), size_bytes_(size_bytes), access_(access) {
    if (!settings().protect || device == kHostSide) return;
    opened_ = access_begin(device, ptr, size_bytes, access);
    is_open_ = opened_.ok();
  }
  ~scoped_access() {
    if (is_open_) access_end(device_, ptr_, size_bytes_, access_);
  }
  scoped_access(const scoped_access&) = delete;
  scoped_access& operator=(const scoped_access&) = delete;

  const result& opened() const {
    return opened_;
  }

 private:
  int32_t device_;
  const void* ptr_;
  uint64_t size_bytes_;
  uint32_t access_;
  bool is_open_ = false;
  result opened_;
};

} // namespace xcpu
