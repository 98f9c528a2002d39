#include "csrc/ops/dispatch/OperatorTraits.h"

#include <algorithm>

#include <ATen/core/jit_type.h>

#include "csrc/ops/dispatch/DeviceCheck.h"
#include "csrc/ops/dispatch/Foresee.h"
#include "csrc/ops/dispatch/OperatorFacts.h"

namespace torch_backend {
namespace {

/// Batch normalization updates these in place; older schemas do not declare it.
bool is_running_statistic(const std::string& name, const c10::Argument& argument) {
  return (argument.name() == "running_mean" || argument.name() == "running_var") &&
         name.find("backward") == std::string::npos;
}

bool is_tensor_or_list(const c10::Type& type) {
  return type.kind() == c10::TypeKind::TensorType || type.isSubtypeOf(*c10::ListType::ofTensors());
}

/// Scalar, Scalar? or a list of them.
bool is_number(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::NumberType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return is_number(*type.containedType(0));
    default:
      return false;
  }
}

bool is_out_form(const c10::FunctionSchema& functional, const c10::FunctionSchema& out) {
  const auto &inputs = functional.arguments(), &all = out.arguments();
  const std::size_t returns = functional.returns().size();
  const bool same_inputs = all.size() == inputs.size() + returns && out.returns().size() == returns &&
                           std::equal(inputs.begin(), inputs.end(), all.begin(), [](const auto& a, const auto& b) {
                             return a.name() == b.name() && *a.real_type() == *b.real_type();
                           });
  return same_inputs && std::all_of(all.end() - static_cast<std::ptrdiff_t>(returns), all.end(), is_write);
}

std::optional<c10::OperatorHandle> find_out_form(const c10::FunctionSchema& schema) {
  const auto makes_tensor = [](const auto& returned) {
    return returned.type()->kind() == c10::TypeKind::TensorType && !returned.alias_info();
  };
  if (schema.returns().empty() || !std::all_of(schema.returns().begin(), schema.returns().end(), makes_tensor)) {
    return std::nullopt;
  }
  // How native_functions.yaml names them; an operator that has another name is served by its functional form.
  for (const auto& overload : {std::string("out"), schema.overload_name() + "_out", std::string("grad_input"),
                               std::string("output"), std::string("IntList_out")}) {
    const auto out = c10::Dispatcher::singleton().findSchema({schema.name(), overload});
    if (out && out->hasKernelForDispatchKey(c10::DispatchKey::CPU) && is_out_form(schema, out->schema())) {
      return out;
    }
  }
  return std::nullopt;
}

} // namespace

bool is_generator(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) {
    return is_generator(*type.castRaw<c10::OptionalType>()->getElementType());
  }
  return type.kind() == c10::TypeKind::GeneratorType;
}

OperatorTraits::OperatorTraits(const c10::OperatorHandle& op) : still_defined(torch_backend::still_defined(op)) {
  const auto& schema = op.schema();
  const auto& arguments = schema.arguments();
  name = schema.name();
  overload = schema.overload_name().empty() ? name : name + "." + schema.overload_name();
  result_rule = find_result_rule(overload);
  random = op.hasTag(at::Tag::nondeterministic_seeded);
  data_dependent = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  pointwise = op.hasTag(at::Tag::pointwise);
  for (const auto& argument : arguments) {
    written.push_back(is_write(argument) || is_running_statistic(name, argument));
    takes_numbers.push_back(is_number(*argument.type()));
    may_be_host.push_back(torch_backend::may_be_host(name, argument));
    random = random || is_generator(*argument.type());
  }
  writes_arguments = std::find(written.begin(), written.end(), true) != written.end();
  returns_tensors = true;
  for (const auto& returned : schema.returns()) {
    returns_tensors = returns_tensors && is_tensor_or_list(*returned.type());
    int source = -1;
    for (std::size_t i = 0; is_write(returned) && i < arguments.size(); ++i) {
      if (is_write(arguments[i]) && arguments[i].alias_info()->beforeSets() == returned.alias_info()->beforeSets()) {
        source = static_cast<int>(i);
      }
    }
    returned_arg.push_back(source);
  }
  foresight = foresight_of(*this);
  if (foresight != Foresight::kNone && !random && !writes_arguments &&
      (pointwise || has_fact(Fact::kWritesOutAtOnce, name))) {
    out_form = find_out_form(schema);
  }
}

} // namespace torch_backend
