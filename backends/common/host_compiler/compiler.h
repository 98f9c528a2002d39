// The compiler of the machine: $CXX, which may have arguments, or c++. Another process, without a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../result.h"

namespace plugin {

class temporary_directory;

// Which compiler it is, for which processor, and how it is called (`called`): what it makes is of use where all are the
// same. At most 63 printable characters; "" if there is none.
std::string compiler_version(std::string_view called);

// Has it make the file `made` of the directory. What it complains about is the text of the failure.
result run_compiler(const std::vector<std::string>& arguments, const temporary_directory& in, const std::string& made);

} // namespace plugin
