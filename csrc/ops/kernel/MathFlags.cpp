#include "csrc/ops/kernel/MathFlags.h"

#include <ATen/Context.h>

#include "torch_backend/device.h"

namespace torch_backend {

uint32_t math_flags() {
  const auto& settings = at::globalContext();
  // Asked as CUDA's own kernels do: allowTF32CuBLAS() throws where a program has used both of PyTorch's ways to set it.
  const auto is_tf32 = [&](at::Float32Op op) {
    return settings.float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32;
  };
  constexpr auto kReduced = at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
  uint32_t flags = 0;
  const auto add = [&](bool allowed, uint32_t flag) { flags |= allowed ? flag : 0; };
  add(is_tf32(at::Float32Op::MATMUL), TB_MATH_TF32_MATMUL);
  add(is_tf32(at::Float32Op::CONV), TB_MATH_TF32_CONV);
  add(settings.allowFP16ReductionCuBLAS() == kReduced, TB_MATH_FP16_REDUCTION);
  add(settings.allowBF16ReductionCuBLAS() == kReduced, TB_MATH_BF16_REDUCTION);
  add(settings.allowFP16AccumulationCuBLAS(), TB_MATH_FP16_ACCUMULATION);
  add(settings.deterministicAlgorithms() || settings.deterministicCuDNN(), TB_MATH_DETERMINISTIC);
  return flags;
}

} // namespace torch_backend
