// One launch of a function of a module.
#pragma once

#include <array>
#include <cstdint>

#include "csrc/ops/compiled/engine/Modules.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// Pointers first, then the struct Args, as SourceText::parameters declares them. One thread, one launch.
class Launch {
 public:
  static constexpr int kMaxParameters = 256;

  explicit Launch(const tb_kernel_context& context) : device_(context.device), stream_(context.stream) {}

  void pointer(const void* address) {
    parameters_[static_cast<std::size_t>(count_++)] = {TB_PARAM_POINTER, 0, address};
  }
  /// Its first element.
  void pointer(const tb_tensor& tensor) {
    pointer(static_cast<const char*>(tensor.data) + tensor.byte_offset);
  }
  void value(const void* data, std::size_t size_bytes) {
    parameters_[static_cast<std::size_t>(count_++)] = {TB_PARAM_VALUE, static_cast<uint32_t>(size_bytes), data};
  }

  /// Enough items for a kernel that divides `count` pieces of work with TB_FOR, each worth about `cost` loads or
  /// multiplications. Throws what the plugin answers.
  void run(const Function& function, int64_t count, int64_t cost = 1);
  /// The same where each piece is the work of one item, however long.
  void run_each(const Function& function, int64_t count, int64_t cost);
  /// `blocks` blocks; the items of each are TB_BLOCK_ITEMS, `items`, a power of two.
  void run_blocks(const Function& function, int64_t blocks, uint32_t items);

 private:
  int device_;
  tb_stream* stream_;
  int count_ = 0;
  std::array<tb_launch_param, kMaxParameters> parameters_;
};

/// Whether modules of the device compute in `type`, a compute_type.
bool computes(int device, ValueType type);

/// The items that blocks of the device should have, a power of two; 1 where it runs in stretches.
uint32_t block_items(int device);

} // namespace torch_backend::compiled
