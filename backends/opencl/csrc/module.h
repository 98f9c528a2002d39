// Modules (kernels.1): programs of OpenCL C, and launches of their kernels.
#pragma once

namespace ocl {

// As tb_kernel_table wants it.
const char* const* module_formats();

} // namespace ocl
