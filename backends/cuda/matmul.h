// Kernels of the plugin's own: products of matrices by cuBLASLt.
#pragma once

#include <cstdint>

#include "torch_backend/device.h"

namespace xcuda {

// Those of kernels.1; none where cuBLASLt is not installed, and the generated kernels serve.
const tb_kernel* const* matmul_kernels(uint64_t* out_count);

} // namespace xcuda
