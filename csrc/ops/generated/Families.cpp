#include "csrc/ops/generated/Families.h"

#include "csrc/ops/generated/Modules.h"
#include "csrc/ops/generated/ValueType.h"

namespace torch_backend::generated {

void Kernels::add(const char* overload, GeneratedFunction function, uint32_t flags, const void* entry) {
  kernels_.push_back(std::make_unique<PluginKernel>(overload, function, entry, flags, kValueTypes.data()));
}

void load_generated_kernels() {
  if (!has_modules()) {
    return;
  }
  Kernels kernels;
  add_losses(kernels);
  add_normalization(kernels);
  add_pointwise(kernels);
  add_reductions(kernels);
  add_scans(kernels);
  add_softmax(kernels);
  add_kernels(kernels.take());
}

} // namespace torch_backend::generated
