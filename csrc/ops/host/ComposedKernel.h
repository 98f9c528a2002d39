// Device kernels made of other operators: on a synchronous device they are one call, of the CPU's operators.
#pragma once

#include <utility>

#include "csrc/ops/host/AtenKernel.h"

namespace torch_backend {
namespace detail {

/// `Op` with `kFormula` in place of ATen's CPU kernel.
template <class Op, auto kFormula>
struct OnAliases : Op {
  template <class... Args>
  static auto redispatch(c10::DispatchKeySet /*keys*/, Args&&... args) {
    return kFormula(std::forward<Args>(args)...);
  }
};

} // namespace detail

/// The device kernel of operator `Op`, a struct of at::_ops, which `kFormula` computes with ATen's operators on whatever
/// device its arguments are. Where CPU kernels run in place it is called once, with CPU tensors on the device's memory, so
/// that its operators cost what they cost on the CPU; elsewhere each of them goes to the device.
template <class Op, auto kFormula, class Schema = typename Op::schema>
struct ComposedKernel;

template <class Op, auto kFormula, class Return, class... Args>
struct ComposedKernel<Op, kFormula, Return(Args...)> {
  static Return call(Args... args) {
    if (runs_inline()) {
      return AtenKernel<detail::OnAliases<Op, kFormula>>::call(std::forward<Args>(args)...);
    }
    return kFormula(std::forward<Args>(args)...);
  }
};

} // namespace torch_backend
