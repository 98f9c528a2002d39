#include "csrc/ops/dispatch/OperatorForms.h"

#include <algorithm>

#include <ATen/core/jit_type.h>

namespace torch_backend {
namespace {

/// The out= arguments: what is written, by keyword only, at the end.
std::size_t count_out_arguments(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  std::size_t count = 0;
  while (count < arguments.size()) {
    const auto& argument = arguments[arguments.size() - 1 - count];
    if (!argument.kwarg_only() || !is_write(argument)) {
      break;
    }
    ++count;
  }
  return count;
}

OperatorForm as_named(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const auto outs = count_out_arguments(schema);
  return {op, outs > 0 ? FormKind::kOut : FormKind::kFunctional, schema.arguments().size() - outs};
}

bool same_inputs(const c10::FunctionSchema& a, const c10::FunctionSchema& b, std::size_t count) {
  return std::equal(a.arguments().begin(), a.arguments().begin() + static_cast<std::ptrdiff_t>(count),
                    b.arguments().begin(), [](const c10::Argument& x, const c10::Argument& y) {
                      return x.name() == y.name() && *x.real_type() == *y.real_type();
                    });
}

/// Which of the inputs are written: running statistics, or what is computed in place.
std::vector<bool> written_inputs(const OperatorForm& form) {
  return {form.traits.written.begin(), form.traits.written.begin() + static_cast<std::ptrdiff_t>(form.num_inputs)};
}

/// Whether the operator returns what it computes as new tensors or out= arguments, whatever else it writes.
bool has_outputs(const OperatorForm& form) {
  const auto& returned = form.traits.returned_arg;
  return std::any_of(returned.begin(), returned.end(), [&](int argument) {
    return argument < 0 || static_cast<std::size_t>(argument) >= form.num_inputs;
  });
}

} // namespace

std::optional<c10::OperatorHandle> find_overload(const std::string& name) {
  const auto dot = name.find('.', name.find("::"));
  const c10::OperatorName parsed(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchema(parsed);
}

OverloadIndex::OverloadIndex() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (const auto op = dispatcher.findSchema(name)) {
      by_name_[name.name].push_back(*op);
    }
  }
}

const std::vector<c10::OperatorHandle>& OverloadIndex::of(const std::string& name) const {
  static const std::vector<c10::OperatorHandle> none;
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? none : found->second;
}

std::vector<OperatorForm> forms_of(const c10::OperatorHandle& named, const OverloadIndex& index) {
  std::vector<OperatorForm> forms{as_named(named)};
  const OperatorForm first = forms[0];
  const auto& schema = named.schema();
  if (!has_outputs(first)) {
    return forms; // in place already, or with effects of its own
  }
  const auto written = written_inputs(first);
  const std::size_t num_outputs = schema.returns().size();
  for (const auto& op : index.of(schema.name())) {
    const OperatorForm form = as_named(op);
    if (form.kind != first.kind && form.num_inputs == first.num_inputs && written_inputs(form) == written &&
        op.schema().returns().size() == num_outputs && same_inputs(schema, op.schema(), form.num_inputs)) {
      forms.push_back(form);
    }
  }
  for (const auto& op : index.of(schema.name() + "_")) {
    const auto& other = op.schema();
    if (num_outputs == 1 && other.returns().size() == 1 && other.arguments().size() == first.num_inputs &&
        first.num_inputs > 0 && is_write(other.arguments()[0]) && same_inputs(schema, other, first.num_inputs)) {
      forms.emplace_back(op, FormKind::kInplace, first.num_inputs);
    }
  }
  return forms;
}

} // namespace torch_backend
