// Which devices there are.
#pragma once

#include <vector>

#include "cl.h"
#include "result.h"

namespace ocl {

struct found_device {
  cl_platform_id platform;
  cl_device_id id;
  int major, minor; // OpenCL version
};

// Those of all drivers that the options let through, at most 64, in the loader's order. Opens the drivers, which start
// threads. Fails if there are none, with the reason.
result find_devices(std::vector<found_device>* out_devices);

// Their number, from a child process: this one can still fork afterwards.
result count_devices(int32_t* out_count);

} // namespace ocl
