// Modules (kernels.1): programs of OpenCL C, and launches of their kernels.
#pragma once

#include "result.h"

namespace ocl {

// As tb_kernel_table wants it.
const char* const* module_formats();

result module_load(int32_t device, const char* format, const void* image, uint64_t size_bytes, tb_module** out_module);
result module_unload(int32_t device, tb_module* module);
result module_function(int32_t device, tb_module* module, const char* name, tb_function** out_function);
result module_launch(int32_t device, tb_function* function, const uint32_t grid[3], const uint32_t block[3],
                     const tb_launch_param* params, uint32_t num_params, tb_stream* stream);
result module_image(int32_t device, tb_module* module, void* out_image, uint64_t* size_bytes);

} // namespace ocl
