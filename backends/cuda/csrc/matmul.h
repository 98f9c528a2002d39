// Kernels of the plugin's own: products of matrices by cuBLASLt.
#pragma once

#include <vector>

#include "torch_backend/device.h"

namespace xcuda {

// Those of kernels.1; none where cuBLASLt is not installed, and the generated kernels serve.
void add_matmul_kernels(std::vector<const tb_kernel*>* out_kernels);

} // namespace xcuda
