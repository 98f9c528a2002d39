// Kernels of the plugin's own: attention by cuDNN.
#pragma once

#include <vector>

#include "torch_backend/device.h"

namespace xcuda {

// Those of kernels.1; none where nobody wants them, or cuDNN is not installed or does not have the operation, and the
// generated kernels serve.
void add_attention_kernels(std::vector<const tb_kernel*>* out_kernels);

} // namespace xcuda
