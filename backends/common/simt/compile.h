// CUDA C++ to a shared object that runs the items of a block side by side, see block.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../result.h"

namespace plugin::simt {

struct compile_options {
  int arch;                       // __CUDA_ARCH__ / 10: 90 for a device of capability 9.0
  std::vector<std::string> flags; // of the host's compiler: for which processor, how exact
  bool looks_for_races = false;   // see races.h; GCC's from 11 on
};

// What the object depends on beside the text, for keys.
std::string description(const compile_options& options);

// What the compiler complains about is the text of the failure.
result compile(std::string_view text, const compile_options& options, std::string* out_object);

} // namespace plugin::simt
