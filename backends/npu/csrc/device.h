// The devices, and whose memory they may access.
#pragma once

#include <cstdint>

#include "result.h"

namespace npu {

// Binds the thread for as long as it lives, and then to the device that it had, if it had one.
class bound {
 public:
  explicit bound(int32_t device);
  ~bound();
  bound(const bound&) = delete;
  bound& operator=(const bound&) = delete;
  const result& outcome() const {
    return result_;
  }

 private:
  int32_t before_ = 0;
  bool had_one_;
  result result_;
};

// Lets the two devices access each other's memory, once. Pre: the calling thread is bound to `device`, and is so afterwards.
result enable_peers(int32_t device, int32_t peer);

// AscendCL's priority for one of device_properties' range: 0 is its lowest, which has the greatest number there. Pre: the
// calling thread is bound.
uint32_t acl_priority(int32_t priority);

} // namespace npu
