// NVRTC, the compiler of CUDA C++ that is a library, opened when the driver is started.
#pragma once

#include <string>
#include <string_view>

#include "result.h"

namespace xcuda {

// "NVRTC 12.9, contracted" and the like: all that what it makes depends on, but the architecture. "" if there is none.
const std::string& compiler_version();

// Code of `source` for devices of this capability: a cubin, or PTX where the compiler is older than the device. Fails
// with the compiler's messages.
result compile(std::string_view source, int capability_major, int capability_minor, std::string* out_code);

} // namespace xcuda
