// The overloads that one kernel can serve: out=, functional and in-place form of the same operator.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/ops/dispatch/OperatorTraits.h"

namespace torch_backend {

/// How an overload relates to the kernel's arguments: inputs, then outputs.
enum class FormKind {
  kFunctional, // arguments are the inputs; new results are outputs. What it writes of its inputs it says in the schema
  kOut,        // the last arguments are the outputs
  kInplace,    // the first input is the output too
};

struct OperatorForm {
  OperatorForm(c10::OperatorHandle operator_handle, FormKind form_kind, std::size_t inputs)
      : op(operator_handle), kind(form_kind), num_inputs(inputs), traits(op) {}

  c10::OperatorHandle op;
  FormKind kind;
  std::size_t num_inputs; // of the schema's arguments, the first ones
  OperatorTraits traits;
};

/// The overload called `name` ("aten::add.out"); nothing if it is not defined.
std::optional<c10::OperatorHandle> find_overload(const std::string& name);

/// Every overload that the dispatcher knows, by operator: it finds overloads only one by one.
class OverloadIndex {
 public:
  OverloadIndex();
  const std::vector<c10::OperatorHandle>& of(const std::string& name) const;
  const std::unordered_map<std::string, std::vector<c10::OperatorHandle>>& all() const {
    return by_name_;
  }

 private:
  std::unordered_map<std::string, std::vector<c10::OperatorHandle>> by_name_;
};

/// `named` first, then the other forms with the same inputs that the dispatcher knows. For "aten::add.out":
/// add.out, add.Tensor and add_.Tensor.
std::vector<OperatorForm> forms_of(const c10::OperatorHandle& named, const OverloadIndex& index);

} // namespace torch_backend
