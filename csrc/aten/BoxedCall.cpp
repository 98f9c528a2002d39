#include "csrc/aten/BoxedCall.h"

#include <algorithm>
#include <string_view>

#include <ATen/core/ivalue.h>

#include "csrc/aten/AsyncCall.h"
#include "csrc/aten/DeviceCheck.h"
#include "csrc/aten/Foresee.h"
#include "csrc/layouts/LayoutCall.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

/// Operators, beside the pointwise ones, whose out= kernel neither resizes its output nor computes anything else in it.
constexpr std::string_view kWritingOut[] = {
    "aten::_log_softmax", "aten::_log_softmax_backward_data",
    "aten::_softmax",     "aten::_softmax_backward_data",
    "aten::addmm",        "aten::baddbmm",
    "aten::bmm",          "aten::cat",
    "aten::index_select", "aten::mm",
    "aten::sum",
};

template <std::size_t N>
bool is_among(const std::string_view (&names)[N], const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_write(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

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

/// Replaces the arguments on the stack by their stand-ins, and keeps those alive.
class Arguments {
 public:
  Arguments(LayoutCall& call, const OperatorTraits& traits, Stack& stack)
      : call_(call), first_(stack.size() - traits.written.size()) {
    for (std::size_t i = 0; i < traits.written.size(); ++i) {
      if (traits.written[i] && stack[first_ + i].isTensor()) {
        call_.expect_write(stack[first_ + i].toTensor());
      }
    }
    for (std::size_t i = 0; i < traits.written.size(); ++i) {
      auto& value = stack[first_ + i];
      if (traits.written[i]) {
        originals_.emplace_back(static_cast<int>(i), value);
      }
      if (value.isDevice() && value.toDevice().is_privateuseone()) {
        call_.host().set_device(value.toDevice());
        value = c10::Device(c10::DeviceType::CPU);
      } else {
        convert(value, traits.written[i]);
      }
    }
  }

  /// Generators given and generators defaulted: a CPU kernel must draw from the device's, never from the CPU's. After
  /// the tensors, which tell the device.
  void convert_generators(const c10::FunctionSchema& schema, Stack& stack) {
    const auto& arguments = schema.arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (is_generator(*arguments[i].type())) {
        auto& value = stack[first_ + i];
        value =
            call_.host().stand_in(value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator()));
      }
    }
  }

  const c10::IValue& original(int index) const {
    for (const auto& [i, value] : originals_) {
      if (i == index) {
        return value;
      }
    }
    TORCH_INTERNAL_ASSERT(false);
  }

 private:
  void convert(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      sources_.push_back(value.toTensor());
      keep_.push_back(call_.stand_in(sources_.back(), written));
      value = keep_.back();
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (auto& tensor : list) {
        sources_.push_back(tensor);
        tensor = call_.stand_in(tensor, written);
        keep_.push_back(tensor);
      }
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> converted;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        if (tensor.has_value()) {
          sources_.push_back(*tensor);
          keep_.push_back(call_.stand_in(*tensor, written));
          converted.push_back(keep_.back());
        } else {
          converted.push_back(std::nullopt);
        }
      }
      value = std::move(converted);
    }
  }

  LayoutCall& call_;
  std::size_t first_;
  c10::SmallVector<at::Tensor, 8> keep_;    // stand-ins
  c10::SmallVector<at::Tensor, 8> sources_; // what they stand for: the stack may have held the last reference
  c10::SmallVector<std::pair<int, c10::IValue>, 4> originals_; // written arguments
};

void convert_result(LayoutCall& call, c10::IValue& value) {
  if (value.isTensor()) {
    value = call.result(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    auto list = value.toTensorVector();
    value = c10::IValue(); // which had a reference to each
    for (auto& tensor : list) {
      tensor = call.result(std::move(tensor));
    }
    value = std::move(list);
  }
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
  if (foresight != Foresight::kNone && !random && !writes_arguments && (pointwise || is_among(kWritingOut, name))) {
    out_form = find_out_form(schema);
  }
}

uint64_t call_on_host(const c10::OperatorHandle& op, const OperatorTraits& traits, Stack* stack,
                      c10::DispatchKey host_key) {
  if (host_key == c10::DispatchKey::CPU && try_async_call(op, traits, stack)) {
    return 0;
  }
  check_devices(op, traits, torch::jit::last(*stack, traits.written.size()));
  LayoutCall call(traits.overload.c_str());
  Arguments arguments(call, traits, *stack);
  arguments.convert_generators(op.schema(), *stack);
  call.host().enter();
  op.redispatchBoxed(c10::DispatchKeySet(host_key), stack);
  call.leave();
  const std::size_t first = stack->size() - traits.returned_arg.size();
  for (std::size_t i = 0; i < traits.returned_arg.size(); ++i) {
    if (traits.returned_arg[i] < 0) {
      for_each_tensor((*stack)[first + i], [&](const at::Tensor& result) { call.host().expect_result(result); });
    }
  }
  for (std::size_t i = 0; i < traits.returned_arg.size(); ++i) {
    auto& value = (*stack)[first + i];
    if (traits.returned_arg[i] >= 0) {
      value = arguments.original(traits.returned_arg[i]);
    } else {
      convert_result(call, value);
    }
  }
  return call.host().bytes_copied();
}

} // namespace torch_backend
