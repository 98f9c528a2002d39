// torch.autocast for the device: PyTorch's own lists of which operators run in the lower precision.

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: their "
              "gradient overflows in lower precision. Use binary_cross_entropy_with_logits or "
              "BCEWithLogitsLoss, which take the values before the sigmoid.");
}

} // namespace

void register_autocast(torch::Library& m) {
  using namespace at; // the lists name PyTorch's types unqualified
  using namespace at::autocast;
#define TB_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TB_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TB_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TB_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TB_LOWER_PRECISION)
  AT_FORALL_FP32(TB_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TB_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TB_PROMOTE)
#undef TB_LOWER_PRECISION
#undef TB_FP32
#undef TB_FP32_SET_OPT_DTYPE
#undef TB_PROMOTE
  m.impl(TORCH_SELECTIVE_NAME("aten::binary_cross_entropy"), TORCH_FN(refuse_binary_cross_entropy));
}

} // namespace torch_backend
