// Libraries of CUDA, wherever they are installed.
#pragma once

#include <string>
#include <vector>

namespace xcuda {

// The first that can be opened of `names` in the folders of the option library_path, where the loader looks (which
// knows what the process has opened already), beside Python packages that the process uses (nvidia-* wheels), and in
// /usr/local/cuda. Null: none; *out_tried is what the loader says of a file that is there, else of a name.
void* open_library(const std::vector<std::string>& names, std::string* out_tried);

// Opens what matches `pattern` in the folder of `library`, which has `symbol`: what that opens by name later, where the loader
// does not look beside it.
void open_beside(void* library, const char* symbol, const std::string& pattern);

// "libnvrtc.so" of the driver's CUDA and of those before, the newest first: a newer one is not taken.
std::vector<std::string> versions_of(const std::string& name);

struct library_function {
  const char* name;
  void** address;
};

// For libraries that there need not be: null if none can be opened, or lacks a function; the debug log says which, and
// what serves then.
void* load_library(const std::vector<std::string>& names, const std::vector<library_function>& functions,
                   const char* otherwise);

} // namespace xcuda
