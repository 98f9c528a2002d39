// The generated kernels by family, and how each makes itself known.
#pragma once

#include <string>
#include <vector>

#include "csrc/ops/compiled/engine/Kernels.h"

namespace torch_backend::compiled {

void add_columns(Kernels& kernels);
void add_indexed(Kernels& kernels);
void add_losses(Kernels& kernels);
void add_matmul(Kernels& kernels);
void add_moves(Kernels& kernels);
void add_multi_tensor(Kernels& kernels);
void add_normalization(Kernels& kernels);
void add_pointwise(Kernels& kernels);
void add_pool(Kernels& kernels);
void add_random(Kernels& kernels);
void add_reductions(Kernels& kernels);
void add_resample(Kernels& kernels);
void add_scans(Kernels& kernels);
void add_softmax(Kernels& kernels);
void add_sorting(Kernels& kernels);

/// Once, when the device is activated, after set_kernels: what the plugin has no kernel for is served by one of
/// these, and so is what its kernel refuses. Nothing if the device takes no modules.
void load_generated_kernels();

/// What there are kernels for, whether or not the active device takes modules: overloads as a plugin would name them, sorted.
std::vector<std::string> generated_overloads();

} // namespace torch_backend::compiled
