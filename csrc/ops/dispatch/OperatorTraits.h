// What an operator's schema, its tags and our tables say about it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/ops/dispatch/RemovedOperators.h"
#include "csrc/ops/dispatch/ResultRules.h"

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

/// Generator, or Generator?.
bool is_generator(const c10::Type& type);

/// Whether an operator's argument is written.
inline bool is_write(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

} // namespace torch_backend
