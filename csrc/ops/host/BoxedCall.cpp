#include "csrc/ops/host/BoxedCall.h"

#include <ATen/core/ivalue.h>

#include "csrc/ops/dispatch/DeviceCheck.h"
#include "csrc/ops/dispatch/Foresee.h"
#include "csrc/ops/host/AsyncCall.h"
#include "csrc/ops/host/layouts/LayoutCall.h"

namespace torch_backend {
namespace {

using torch::jit::Stack;

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
