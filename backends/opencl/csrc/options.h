// The user's settings, "ocl.<key>", read once at load. README.md lists them.
#pragma once

#include <string>

#include "cl.h"
#include "result.h"

namespace ocl {

enum class memory_mode { automatic, svm, buffer };

enum class clblast_use { automatic, always, never };

struct options {
  std::string platform; // a part of its name; empty = every platform
  cl_device_type device_type = CL_DEVICE_TYPE_ALL;
  memory_mode memory = memory_mode::automatic;
  clblast_use clblast = clblast_use::automatic;
};

// Settled by read_options; constant afterwards.
const options& settings();

// The keys there are, for tb_plugin.
const char* const* option_keys();

// On failure nothing is settled and the text says what is allowed.
result read_options();

} // namespace ocl
