// Any operator's CPU kernel on device tensors, driven by its schema.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "csrc/aten/RemovedOperators.h"
#include "csrc/aten/ResultRules.h"

namespace torch_backend {

/// How it is known what an operator returns before it runs; see Foresee.h.
enum class Foresight { kNone, kMeta, kTrial };

/// What the schema says about an operator, worked out once.
struct OperatorTraits {
  explicit OperatorTraits(const c10::OperatorHandle& op);

  std::string overload; // "aten::sort.stable"
  std::string name;     // "aten::sort"
  bool random;          // takes a generator, or draws numbers without taking one
  bool data_dependent;  // output shapes depend on values
  bool pointwise;       // each element of the result comes from those at its place
  bool returns_tensors; // nothing but tensors, lists of them included
  Foresight foresight;
  std::vector<bool> written;       // per argument: a tensor or list that the operator writes
  bool writes_arguments;           // any of them
  std::vector<bool> may_be_host;   // ... whose tensors may be on the CPU: indices, lengths
  std::vector<bool> takes_numbers; // per argument: a Scalar, or a list of them
  std::vector<int> returned_arg;   // per return: the written argument it is, or -1 for a new value
  /// The out= overload with the same inputs, for operators that are known to write what they compute there at once.
  std::optional<c10::OperatorHandle> out_form;
  ResultRule result_rule;     // or NULL
  StillDefined still_defined; // false: what is here was true of an operator that is gone
};

/// Calls the kernel that `op` has for `host_key`, CPU's or that of a layout on the CPU. Tensors may have any layout.
/// Replaces the arguments on `stack` by the results. Results are on the device, written arguments are the same tensors
/// afterwards, random numbers come from the device's generator. Returns the bytes copied between device and host.
uint64_t call_on_host(const c10::OperatorHandle& op, const OperatorTraits& traits, torch::jit::Stack* stack,
                      c10::DispatchKey host_key = c10::DispatchKey::CPU);

} // namespace torch_backend
