// The compiler of the machine: $CXX, which may have arguments, or c++. Another process, without a shell.
#pragma once

#include <string>
#include <string_view>

#include "../result.h"

namespace xcpu::modules {

class temporary_directory;

// Which compiler it is, for which processor, and how it is called: what it makes is of use where all are the same. At most
// 63 printable characters; "" if there is none. Asked once.
const std::string& compiler_version();

// Builds C++17 `source` to the shared object `*out_path` in the directory, for this machine. What the compiler complains
// about is the text of the failure.
result compile(std::string_view source, const temporary_directory& in, std::string* out_path);

} // namespace xcpu::modules
