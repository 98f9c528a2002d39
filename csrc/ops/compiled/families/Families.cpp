#include "csrc/ops/compiled/families/Families.h"

#include <algorithm>

#include "csrc/ops/compiled/engine/Modules.h"

namespace torch_backend::compiled {

namespace {

KernelList all_kernels() {
  Kernels kernels;
  add_columns(kernels);
  add_indexed(kernels);
  add_losses(kernels);
  add_matmul(kernels);
  add_moves(kernels);
  add_multi_tensor(kernels);
  add_normalization(kernels);
  add_pointwise(kernels);
  add_pool(kernels);
  add_random(kernels);
  add_reductions(kernels);
  add_resample(kernels);
  add_scans(kernels);
  add_softmax(kernels);
  add_sorting(kernels);
  return kernels.take();
}

} // namespace

void load_generated_kernels() {
  if (!has_modules()) {
    return;
  }
  add_kernels(all_kernels());
}

std::vector<std::string> generated_overloads() {
  std::vector<std::string> overloads;
  for (const auto& kernel : all_kernels()) {
    overloads.push_back(kernel->op());
  }
  std::sort(overloads.begin(), overloads.end());
  return overloads;
}

} // namespace torch_backend::compiled
