// Kernels of the plugin's own: convolutions by cuDNN.
#pragma once

#include <vector>

#include "torch_backend/device.h"

namespace xcuda {

// Those of kernels.1; none where cuDNN is not installed, and the generated kernels serve.
void add_convolution_kernels(std::vector<const tb_kernel*>* out_kernels);

} // namespace xcuda
