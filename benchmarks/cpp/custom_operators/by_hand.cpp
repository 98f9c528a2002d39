// The pair of ops.yaml as PyTorch's guide to operators in C++ has one written, and the kernels of both.

#include "ops.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace bench::kernels {

at::Tensor forward(const at::Tensor& x, const at::Tensor&, double) {
  return at::empty_like(x);
}

std::tuple<at::Tensor, at::Tensor> backward(const at::Tensor&, const at::Tensor& x, const at::Tensor& weight, double) {
  return {at::empty_like(x), at::empty_like(weight)};
}

} // namespace bench::kernels

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor call(const at::Tensor& x, const at::Tensor& weight, double factor) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("bench::by_hand", "").typed<decltype(call)>();
  return op.call(x, weight, factor);
}

std::tuple<at::Tensor, at::Tensor> call_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                                                 double factor) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("bench::by_hand_backward", "").typed<decltype(call_backward)>();
  return op.call(grad, x, weight, factor);
}

struct ByHand : torch::autograd::Function<ByHand> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, double factor) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({x, weight});
    ctx->saved_data["factor"] = factor;
    return call(x, weight, factor);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto [x, weight] = call_backward(grads[0], saved[0], saved[1], ctx->saved_data["factor"].toDouble());
    return {x, weight, at::Tensor()};
  }
};

at::Tensor autograd(const at::Tensor& x, const at::Tensor& weight, double factor) {
  return ByHand::apply(x, weight, factor);
}

at::Tensor autocast(const at::Tensor& x, const at::Tensor& weight, double factor) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastPrivateUse1);
  const auto dtype = at::autocast::get_lower_precision_fp_from_device_type(at::kPrivateUse1);
  return call(at::autocast::cached_cast(dtype, x, at::kPrivateUse1),
              at::autocast::cached_cast(dtype, weight, at::kPrivateUse1), factor);
}

} // namespace

TORCH_LIBRARY_FRAGMENT(bench, m) {
  m.def("by_hand(Tensor x, Tensor weight, float factor) -> Tensor");
  m.def("by_hand_backward(Tensor grad, Tensor x, Tensor weight, float factor) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(bench, PrivateUse1, m) {
  m.impl("by_hand", TORCH_FN(bench::kernels::forward));
  m.impl("by_hand_backward", TORCH_FN(bench::kernels::backward));
}

TORCH_LIBRARY_IMPL(bench, Autograd, m) {
  m.impl("by_hand", TORCH_FN(autograd));
}

TORCH_LIBRARY_IMPL(bench, AutocastPrivateUse1, m) {
  m.impl("by_hand", TORCH_FN(autocast));
}
