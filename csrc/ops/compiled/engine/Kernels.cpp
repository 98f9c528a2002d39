#include "csrc/ops/compiled/engine/Kernels.h"

#include <algorithm>
#include <memory>

#include "csrc/core/DType.h"
#include "csrc/ops/compiled/engine/AheadImages.h"
#include "csrc/ops/compiled/engine/Rehearsal.h"

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
    try {
      return rehearsed(context.device, [&] { return function_(entry_, context, args, num_args); });
    } catch (const MissingImage&) {
      return TB_STATUS_UNSUPPORTED;
    }
  }

 private:
  uint64_t dtypes_on(uint64_t device_types) const override {
    uint64_t mask[TB_DTYPE_MASK_WORDS];
    std::copy(types_.begin(), types_.end(), mask);
    return scalar_types_in(mask) & device_types;
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
