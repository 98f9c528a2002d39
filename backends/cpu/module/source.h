// What the machine's compiler makes of a module's text: see "c++" and "cuda-c" at tb_launch_param.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "../result.h"

namespace xcpu::modules {

// Of the device where items run side by side, times ten: its prelude has the matrix units of GPUs from 8.0 on.
constexpr int32_t kCapability = 80;

// "c++", or "cuda-c" where items run side by side.
const char* source_format();

// What a module's functions are in "c++".
using block_function = void (*)(const uint32_t* block, const uint32_t* grid, const uint32_t* block_size,
                                void* const* params);

// What an object depends on beside its text: tb_device_properties.driver_version. "" if there is no compiler. Asked once.
const std::string& driver_version();

// A shared object for this machine. What the compiler complains about is the text of the failure.
result compile(std::string_view source, std::string* out_object);

} // namespace xcpu::modules
