// The list that families of kernels write themselves into.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/plugin/PluginKernels.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// Kernels in the form of a plugin's, but that they are ours. Each family adds its own.
class Kernels {
 public:
  /// `flags` are TB_KERNEL_* and those of PluginKernels.h; `entry` is what the function is called with besides the
  /// arguments, of static storage. `types` are the dtypes that it takes, a dtype_mask.
  void add(const char* overload, GeneratedFunction function, uint32_t flags = 0, const void* entry = nullptr,
           const TypeMask& types = kCommonTypes);

  std::vector<std::unique_ptr<PluginKernel>> take() {
    return std::move(kernels_);
  }

 private:
  std::vector<std::unique_ptr<PluginKernel>> kernels_;
};

} // namespace torch_backend::compiled
