// The user's settings, "npu.<key>", read once at load. README.md lists them.
#pragma once

#include <string>

#include "result.h"

namespace npu {

struct options {
  std::string path; // the folder of CANN's libraries; empty: the linker's search path, then ASCEND_HOME_PATH
};

// Settled by read_options; constant afterwards.
const options& settings();

// The keys there are, for tb_plugin.
const char* const* option_keys();

void read_options();

} // namespace npu
