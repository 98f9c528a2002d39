#include "csrc/ops/dispatch/DeviceCheck.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/jit_type.h>
#include <ATen/core/op_registration/adaption.h>
#include <c10/util/Exception.h>

#include "csrc/ops/dispatch/OperatorFacts.h"
#include "csrc/ops/dispatch/Values.h"

namespace torch_backend {
namespace {

using Values = c10::ArrayRef<c10::IValue>;

/// The first device of ours and the one that does not go with it.
std::optional<std::pair<c10::Device, c10::Device>> find_two_devices(const OperatorTraits& traits, Values arguments) {
  std::optional<c10::Device> common;
  std::optional<c10::Device> other;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined() ||
          (tensor.is_cpu() && (tensor.dim() == 0 || traits.may_be_host[i]) && !traits.written[i])) {
        return;
      }
      const auto device = tensor.device();
      if (device.is_privateuseone() && !common) {
        common = device;
      } else if (device != common) {
        other = other.value_or(device);
      }
    });
  }
  return common && other ? std::optional(std::pair(*common, *other)) : std::nullopt;
}

/// What PyTorch generates around kernels: outputs come first.
void check_as_wrapper(const c10::OperatorHandle& op, const OperatorTraits& traits, Values arguments) {
  const auto& schema = op.schema();
  const std::string method =
      "wrapper_PrivateUse1_" + schema.overload_name() + "_" + traits.name.substr(traits.name.find("::") + 2);
  std::optional<c10::Device> common;
  for (const bool outputs : {true, false}) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto& argument = schema.arguments()[i];
      if ((argument.kwarg_only() && traits.written[i]) == outputs) {
        for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
          c10::impl::check_and_update_common_device(common, tensor, method.c_str(), argument.name().c_str());
        });
      }
    }
  }
}

} // namespace

bool are_indices(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::ListType::create(c10::OptionalType::ofTensor())) &&
         !argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
}

bool may_be_host(const std::string& name, const c10::Argument& argument) {
  return are_indices(argument) || has_fact(Fact::kHostArgument, name + " " + argument.name());
}

void check_devices(const c10::OperatorHandle& op, const OperatorTraits& traits, Values arguments) {
  const auto two = find_two_devices(traits, arguments);
  if (C10_LIKELY(!two)) {
    return;
  }
  if (has_fact(Fact::kWrapperChecksDevices, traits.overload)) {
    check_as_wrapper(op, traits, arguments);
  }
  const bool indexes = std::any_of(op.schema().arguments().begin(), op.schema().arguments().end(), are_indices);
  TORCH_CHECK(!indexes || arguments[0].toTensor().device() == two->first,
              "indices should be either on cpu or on the same device as the indexed tensor (",
              arguments[0].toTensor().device(), ")");
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", two->first,
              " and ", two->second, "!");
}

} // namespace torch_backend
