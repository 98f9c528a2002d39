// Operators made of other operators, for devices with modules.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"

namespace torch_backend::generated {

/// `Op`, a struct of at::_ops, as `kFormula` where the host has no access; ATen's kernel elsewhere.
template <class Op, auto kFormula, class Schema = typename Op::schema>
struct Composition;

template <class Op, auto kFormula, class Return, class... Args>
struct Composition<Op, kFormula, Return(Args...)> {
  static Return call(Args... args) {
    if (device_api().host_access()) {
      return AtenKernel<Op>::call(std::forward<Args>(args)...);
    }
    return kFormula(std::forward<Args>(args)...);
  }
};

/// The form that writes its last argument, of the formula that returns a tensor.
template <auto kFormula, class Formula = decltype(kFormula)>
struct Into;

template <auto kFormula, class... Args>
struct Into<kFormula, at::Tensor (*)(Args...)> {
  static at::Tensor& call(Args... args, at::Tensor& out) {
    const auto result = kFormula(std::forward<Args>(args)...);
    at::native::resize_output(out, result.sizes());
    return out.copy_(result);
  }
};

#define TB_COMPOSITION(m, overload, op, formula) \
  (m).impl(overload, Composition<at::_ops::op, formula>::call, Source::kGenerated)

/// Nothing if the device takes no modules.
void register_compositions(Registrar& m);

// What they are about, in files of their own.
void register_bags(Registrar& m);
void register_counting(Registrar& m);
void register_distances(Registrar& m);
void register_ctc(Registrar& m);
void register_grid(Registrar& m);
void register_solves(Registrar& m);
void register_spectral(Registrar& m);

} // namespace torch_backend::generated
