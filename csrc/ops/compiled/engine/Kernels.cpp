#include "csrc/ops/compiled/engine/Kernels.h"

namespace torch_backend::compiled {

void Kernels::add(const char* overload, GeneratedFunction function, uint32_t flags, const void* entry,
                  const TypeMask& types) {
  kernels_.push_back(std::make_unique<PluginKernel>(overload, function, entry, flags, types.data()));
}

} // namespace torch_backend::compiled
