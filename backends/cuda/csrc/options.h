// The user's settings, "xcuda.<key>", read once at load. README.md lists them.
#pragma once

#include <string>

#include "result.h"

namespace xcuda {

struct options {
  std::string library_path;  // folders with libraries of CUDA, separated by colons
  bool fmad = false;         // a * b + c in kernels is rounded once
  bool stream_alloc = false; // device memory comes from the driver's pool, in the order of streams
};

// Settled by read_options; constant afterwards.
const options& settings();

// The keys there are, for tb_plugin.
const char* const* option_keys();

// On failure nothing is settled and the text says what is allowed.
result read_options();

} // namespace xcuda
