// What simulated libraries share whose results ATen's CPU kernels compute. Aten.cmake adds it to them.
#pragma once

#include <ATen/ATen.h>

#include <functional>

namespace sim {

// The operands of a command while it runs; undefined: left out.
using tensors = std::vector<at::Tensor>;
using body = std::function<void(tensors&)>;

// On a stream's thread, where no program has said that gradients are wanted. All of the workspace is written, and nobody
// else may write it meanwhile. `failed`, if ATen refuses the operands, or if somebody has.
int compute(const char* name, int failed, char* workspace, uint64_t workspace_bytes, const body& run,
            tensors& operands);

// What units for products of matrices make of numbers: the nearest that have so many bits after the first one.
at::Tensor rounded(const at::Tensor& x, int bits);

} // namespace sim
