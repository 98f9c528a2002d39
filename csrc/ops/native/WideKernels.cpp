// Dtypes that PyTorch's kernels for CUDA take and those for the CPU do not: computed in a wider one, on whatever device.

#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/native/Resize.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

using Wider = c10::ScalarType (*)(c10::ScalarType);

c10::ScalarType of_halves(c10::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}
c10::ScalarType of_float16(c10::ScalarType type) {
  return type == at::kHalf ? at::kFloat : type;
}
/// Of sums.
c10::ScalarType of_bools(c10::ScalarType type) {
  return type == at::kBool ? at::kLong : type;
}

/// An argument of the operator, for the call in the wider dtype.
template <Wider kWider, class T>
struct Argument {
  explicit Argument(T given) : value(given) {}
  T get() {
    return value;
  }
  void write_back() {}
  T value;
};

template <Wider kWider>
struct Argument<kWider, const at::Tensor&> {
  explicit Argument(const at::Tensor& given) : value(given.to(kWider(given.scalar_type()))) {}
  const at::Tensor& get() {
    return value;
  }
  void write_back() {}
  at::Tensor value;
};

template <Wider kWider>
struct Argument<kWider, const std::optional<at::Tensor>&> {
  explicit Argument(const std::optional<at::Tensor>& given) {
    if (given.has_value() && given->defined()) {
      value = given->to(kWider(given->scalar_type()));
    }
  }
  const std::optional<at::Tensor>& get() {
    return value;
  }
  void write_back() {}
  std::optional<at::Tensor> value;
};

template <Wider kWider>
struct Argument<kWider, at::Tensor&> {
  explicit Argument(at::Tensor& written) : given(written), value(written.to(kWider(written.scalar_type()))) {}
  at::Tensor& get() {
    return value;
  }
  void write_back() {
    if (!value.is_same(given)) {
      at::native::resize_output(given, value.sizes());
      given.copy_(value);
    }
  }
  at::Tensor& given;
  at::Tensor value;
};

template <Wider kWider, class T>
bool is_narrow(const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return kWider(argument.scalar_type()) != argument.scalar_type();
  }
  return false;
}

at::Tensor narrowed(at::Tensor&& result, c10::ScalarType wide, c10::ScalarType narrow) {
  return result.scalar_type() == wide && narrow != at::kBool ? result.to(narrow) : std::move(result);
}
template <class... Ts>
std::tuple<Ts...> narrowed(std::tuple<Ts...>&& results, c10::ScalarType wide, c10::ScalarType narrow) {
  return std::apply([&](auto&... each) { return std::tuple<Ts...>(narrowed(std::move(each), wide, narrow)...); },
                    results);
}

/// The kernel of `Op`, a struct of at::_ops whose first argument tells whether there is something to widen.
template <class Op, Wider kWider, class Schema = typename Op::schema>
struct WideKernel;

template <class Op, Wider kWider, class Return, class First, class... Rest>
struct WideKernel<Op, kWider, Return(First, Rest...)> {
  static Return call(First first, Rest... rest) {
    if (!is_narrow<kWider>(first)) {
      return AtenKernel<Op>::call(std::forward<First>(first), std::forward<Rest>(rest)...);
    }
    const c10::ScalarType narrow = first.scalar_type();
    std::tuple<Argument<kWider, First>, Argument<kWider, Rest>...> wide{Argument<kWider, First>(first),
                                                                        Argument<kWider, Rest>(rest)...};
    const auto run = [](auto&... each) -> Return { return Op::call(each.get()...); };
    if constexpr (std::is_same_v<Return, at::Tensor&>) {
      std::apply(run, wide);
      std::apply([](auto&... each) { (each.write_back(), ...); }, wide);
      return detail::written_argument<0, First, Rest...>(std::forward<First>(first), std::forward<Rest>(rest)...);
    } else if constexpr (detail::ReferenceTuple<Return>::value) {
      std::apply(run, wide);
      std::apply([](auto&... each) { (each.write_back(), ...); }, wide);
      return Return(
          detail::written_argument<0, First, Rest...>(std::forward<First>(first), std::forward<Rest>(rest)...),
          detail::written_argument<1, First, Rest...>(std::forward<First>(first), std::forward<Rest>(rest)...));
    } else {
      Return result = std::apply(run, wide);
      std::apply([](auto&... each) { (each.write_back(), ...); }, wide);
      return narrowed(std::move(result), kWider(narrow), narrow);
    }
  }
};

/// Without what is NaN.
at::Tensor numbers_of(const at::Tensor& self) {
  return self.masked_fill(self.isnan(), 0);
}

at::Tensor nansum(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                  std::optional<c10::ScalarType> dtype) {
  return self.is_complex() ? at::sum(numbers_of(self), dim, keepdim, dtype)
                           : AtenKernel<at::_ops::nansum>::call(self, dim, keepdim, dtype);
}

at::Tensor& nansum_out(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                       std::optional<c10::ScalarType> dtype, at::Tensor& out) {
  return self.is_complex() ? at::sum_out(out, numbers_of(self), dim, keepdim, dtype)
                           : AtenKernel<at::_ops::nansum_out>::call(self, dim, keepdim, dtype, out);
}

at::Tensor& abs_out(const at::Tensor& self, at::Tensor& out) {
  if (self.scalar_type() != at::kBool) {
    return AtenKernel<at::_ops::abs_out>::call(self, out);
  }
  at::native::resize_output(out, self.sizes());
  return out.copy_(self);
}

} // namespace

#define TB_WIDE(overload, op, wider) m.impl(overload, TORCH_FN((WideKernel<at::_ops::op, wider>::call)), Source::kAten)

void register_wide_kernels(Registrar& m) {
  TB_WIDE("avg_pool3d", avg_pool3d, of_halves);
  TB_WIDE("avg_pool3d.out", avg_pool3d_out, of_halves);
  TB_WIDE("avg_pool3d_backward", avg_pool3d_backward, of_halves);
  TB_WIDE("avg_pool3d_backward.grad_input", avg_pool3d_backward_grad_input, of_halves);
  TB_WIDE("multi_margin_loss", multi_margin_loss, of_halves);
  TB_WIDE("multi_margin_loss.out", multi_margin_loss_out, of_halves);
  TB_WIDE("multi_margin_loss_backward", multi_margin_loss_backward, of_halves);
  TB_WIDE("multi_margin_loss_backward.grad_input", multi_margin_loss_backward_grad_input, of_halves);
  TB_WIDE("multilabel_margin_loss_forward", multilabel_margin_loss_forward, of_halves);
  TB_WIDE("multilabel_margin_loss_forward.output", multilabel_margin_loss_forward_output, of_halves);
  TB_WIDE("multilabel_margin_loss_backward", multilabel_margin_loss_backward, of_halves);
  TB_WIDE("multilabel_margin_loss_backward.grad_input", multilabel_margin_loss_backward_grad_input, of_halves);
  TB_WIDE("_upsample_bilinear2d_aa", _upsample_bilinear2d_aa, of_halves);
  TB_WIDE("_upsample_bilinear2d_aa.out", _upsample_bilinear2d_aa_out, of_halves);
  TB_WIDE("_upsample_bilinear2d_aa_backward", _upsample_bilinear2d_aa_backward, of_halves);
  TB_WIDE("_upsample_bilinear2d_aa_backward.grad_input", _upsample_bilinear2d_aa_backward_grad_input, of_halves);
  TB_WIDE("_upsample_bicubic2d_aa", _upsample_bicubic2d_aa, of_halves);
  TB_WIDE("_upsample_bicubic2d_aa.out", _upsample_bicubic2d_aa_out, of_halves);
  TB_WIDE("_upsample_bicubic2d_aa_backward", _upsample_bicubic2d_aa_backward, of_halves);
  TB_WIDE("_upsample_bicubic2d_aa_backward.grad_input", _upsample_bicubic2d_aa_backward_grad_input, of_halves);
  TB_WIDE("rrelu_with_noise", rrelu_with_noise, of_float16);
  TB_WIDE("rrelu_with_noise_", rrelu_with_noise_, of_float16);
  TB_WIDE("trace", trace, of_bools);
  m.impl("nansum", TORCH_FN(nansum), Source::kAten);
  m.impl("nansum.out", TORCH_FN(nansum_out), Source::kAten);
  m.impl("abs.out", TORCH_FN(abs_out), Source::kAten);
}

} // namespace torch_backend
