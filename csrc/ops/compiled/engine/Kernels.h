// The list that families of kernels write themselves into.
#pragma once

#include <cstdint>
#include <utility>

#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/kernel/KernelTable.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// The host's part of a kernel: prepares and enqueues launches. `entry` is what it was added with. May throw.
using KernelFunction = tb_status (*)(const void* entry, const tb_kernel_context& context, const tb_arg* args,
                                     int32_t num_args);

/// Each family adds its own.
class Kernels {
 public:
  /// `flags` are TB_KERNEL_* and KernelFlag; `entry` is of static storage. `types` are the dtypes that it takes, a
  /// dtype_mask, of which the device may have fewer.
  void add(const char* overload, KernelFunction function, uint32_t flags = 0, const void* entry = nullptr,
           const TypeMask& types = kCommonTypes);

  KernelList take() {
    return std::move(kernels_);
  }

 private:
  KernelList kernels_;
};

} // namespace torch_backend::compiled
