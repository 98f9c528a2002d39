#include "csrc/ops/compiled/engine/Kernels.h"

#include <algorithm>
#include <memory>

#include "csrc/core/DType.h"

namespace torch_backend::compiled {
namespace {

constexpr uint32_t kConventions =
    kLeavesOutEmptyOutputs | kTakesUint64 | kIsPointwiseOfNumbers | kTakesNumberLists | kLeavesHostMemory;

class CompiledKernel final : public Kernel {
 public:
  CompiledKernel(const char* op, KernelFunction function, uint32_t flags, const void* entry, const TypeMask& types)
      : Kernel(op, flags | kConventions), function_(function), entry_(entry), types_(types) {}

  Source source() const override {
    return Source::kGenerated;
  }
  tb_status run(const tb_kernel_context& context, const tb_arg* args, int32_t num_args) const override {
    return function_(entry_, context, args, num_args);
  }

 private:
  uint64_t dtypes_among(const uint64_t* device_types) const override {
    uint64_t ours[TB_DTYPE_MASK_WORDS], of_device[TB_DTYPE_MASK_WORDS]; // of which no bit means all
    std::copy(types_.begin(), types_.end(), ours);
    std::copy_n(device_types, TB_DTYPE_MASK_WORDS, of_device);
    return scalar_types_in(ours) & scalar_types_in(of_device);
  }

  KernelFunction function_;
  const void* entry_;
  const TypeMask& types_; // of static storage
};

} // namespace

void Kernels::add(const char* overload, KernelFunction function, uint32_t flags, const void* entry,
                  const TypeMask& types) {
  kernels_.push_back(std::make_unique<CompiledKernel>(overload, function, flags, entry, types));
}

} // namespace torch_backend::compiled
