// Operators made of other operators, for devices with modules.
#pragma once

#include <utility>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/AheadImages.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/AtenKernel.h"

namespace torch_backend::compiled {

/// `Op`, a struct of at::_ops, as `kFormula` where the host has no access; ATen's kernel elsewhere.
template <class Op, auto kFormula, class Schema = typename Op::schema>
struct Composition;

template <class Op, auto kFormula, class Return, class... Args>
struct Composition<Op, kFormula, Return(Args...)> {
  static Return call(Args... args) {
    if (device_api().host_access()) {
      return AtenKernel<Op>::call(std::forward<Args>(args)...);
    }
    try {
      return kFormula(args...);
    } catch (const MissingImage&) {
      return AtenKernel<Op>::call(std::forward<Args>(args)...);
    }
  }
};

/// What PyTorch's kernels say of elements of one dtype that they take for another one's.
inline void check_dtype(const at::Tensor& tensor, c10::ScalarType expected) {
  TORCH_CHECK(tensor.scalar_type() == expected, "expected scalar type ", expected, " but found ", tensor.scalar_type());
}

/// What may be refused before anything is computed: `input`, if it is a tensor, lies where `out` does, but for another part
/// of it.
template <class T>
void check_overlap(const at::Tensor& /*out*/, const T& /*input*/) {}
inline void check_overlap(const at::Tensor& out, const at::Tensor& input) {
  at::assert_no_partial_overlap(out, input);
}

/// What PyTorch refuses of an output that is given, before anything is computed.
template <class... Inputs>
void check_out(const at::Tensor& out, const Inputs&... inputs) {
  at::assert_no_internal_overlap(out);
  (check_overlap(out, inputs), ...);
}

/// ... and after it.
void check_out_dtype(const at::Tensor& out, const at::Tensor& result);

/// The rest of an out= form: `out` gets the result's size, and the result, of which it must have the dtype.
at::Tensor& write_result(at::Tensor& out, const at::Tensor& result);
/// ... of any dtype.
at::Tensor& convert_result(at::Tensor& out, const at::Tensor& result);

/// The form that writes its last argument, of the formula that returns a tensor.
template <auto kFormula, auto kWrite = write_result, class Formula = decltype(kFormula)>
struct Into;

template <auto kFormula, auto kWrite, class... Args>
struct Into<kFormula, kWrite, at::Tensor (*)(Args...)> {
  static at::Tensor& call(Args... args, at::Tensor& out) {
    check_out(out, args...);
    return kWrite(out, kFormula(std::forward<Args>(args)...));
  }
};

#define TB_COMPOSITION(m, overload, op, formula) \
  (m).impl(overload, Composition<at::_ops::op, formula>::call, Source::kGenerated)

/// Also those of the other files here. Nothing if the device takes no modules.
void add_compositions(Registrar& m);

} // namespace torch_backend::compiled
