// Modules: CUDA C++, and cubins as images.
#pragma once

namespace xcuda {

// As tb_kernel_table wants it.
const char* const* module_formats();

} // namespace xcuda
