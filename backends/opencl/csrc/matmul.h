// Products of matrices as kernels of this plugin (kernels.1), by CLBlast.
#pragma once

#include "result.h"

namespace ocl {

// As tb_kernel_table wants it: none where there is no CLBlast, or ocl.clblast is 0.
void matmul_kernels(const tb_kernel* const** out_kernels, uint64_t* out_count);

} // namespace ocl
