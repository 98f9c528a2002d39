// A kernel as PyTorch's kernel of an operator, driven by the operator's schema.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "csrc/ops/dispatch/NextSource.h"
#include "csrc/ops/dispatch/OperatorForms.h"
#include "csrc/ops/dispatch/ResultRules.h"
#include "csrc/ops/kernel/Kernel.h"

namespace torch_backend {

/// Serves one form of an operator.
///
/// Outputs are worked out with the operator's meta kernel, allocated, and given to the kernel after the inputs; those of
/// an out= call are resized if need be. An in-place call of a pointwise operator writes where it reads; other operators
/// get a fresh output that is then copied. Pointwise operators get inputs of one dtype, broadcast to the output's
/// shape, and Python numbers as tensors. Indices, and a number to be stored at them, may be on the host, as on CUDA. All
/// else that a kernel may not see goes to the next source: mixed dtypes and devices, outputs that overlap inputs, empty
/// inputs, arguments that the meta kernel refuses.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  /// `functional`: the form of the same operator that tells the outputs; `form` itself if there is no other.
  BoxedKernel(const Kernel& kernel, OperatorForm form, std::optional<OperatorForm> functional, NextSource& next);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  /// True: the results have replaced the arguments. False: nothing was done.
  bool try_call(torch::jit::Stack& stack) const;
  /// Of an operator that takes indices: what it takes from the host beside a tensor of the device, brought there.
  void bring_from_host(torch::jit::Stack& stack) const;
  /// Of an operator in place: raises, as PyTorch's own kernels do, if an input is another part of what is written. A
  /// number to be stored becomes a copy of its own.
  void check_overlap(torch::jit::Stack& stack) const;
  bool needs_meta_kernel() const;
  /// The results on meta tensors, empty if they need not be known; nothing if they cannot be.
  /// `dtype`: of a pointwise operator's computation.
  std::optional<torch::jit::Stack> foresee_outputs(c10::ArrayRef<c10::IValue> inputs,
                                                   std::optional<c10::ScalarType> dtype) const;
  /// What the kernel writes, in order; undefined what it allocates. False: not by a kernel.
  bool prepare_outputs(c10::ArrayRef<c10::IValue> arguments, const torch::jit::Stack& foreseen, c10::Device device,
                       torch::jit::Stack* outputs) const;
  class InputAdder;
  void add_inputs(InputAdder& adder, c10::ArrayRef<c10::IValue> inputs, const torch::jit::Stack& foreseen,
                  std::optional<c10::ScalarType> dtype, c10::Device device) const;
  void return_results(torch::jit::Stack outputs, torch::jit::Stack& stack) const;

  const Kernel& kernel_;
  OperatorForm form_;
  std::optional<OperatorForm> functional_;
  NextSource& next_;
  ResultRule result_rule_; // or NULL
  bool pointwise_;
  bool one_dtype_;                          // refuses inputs of several
  bool writes_first_;                       // in place, and refuses inputs that lie in what it writes
  bool indexes_;                            // takes lists of indices
  std::vector<bool> is_dtype_;              // per input: an integer that names a dtype
  std::vector<bool> is_stored_;             // per input: a number that is read before anything is written
  std::vector<bool> is_apart_;              // per input: must not lie where anything is written
  std::vector<bool> is_mask_;               // per input: a condition, which keeps its dtype beside others
  std::vector<bool> is_generator_;          // per input
  mutable std::atomic<bool> warned_{false}; // that there is no meta kernel
};

} // namespace torch_backend
