// The generated kernels by family, and how each makes itself known.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/ops/generated/ValueType.h"
#include "csrc/ops/plugin/PluginKernels.h"
#include "torch_backend/device.h"

namespace torch_backend::generated {

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

/// Once, when the device is activated, after load_plugin_kernels: what the plugin has no kernel for is served by one of
/// these, and so is what its kernel refuses. Nothing if the device takes no modules.
void load_generated_kernels();

/// What there are kernels for, whether or not the active device takes modules: overloads as a plugin would name them, sorted.
std::vector<std::string> generated_overloads();

} // namespace torch_backend::generated
