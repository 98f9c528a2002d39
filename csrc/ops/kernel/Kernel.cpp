#include "csrc/ops/kernel/Kernel.h"

#include <string_view>
#include <utility>

#include <ATen/core/jit_type.h>
#include <c10/util/StringUtil.h>
#include <torch/headeronly/version.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/dispatch/OperatorFacts.h"
#include "csrc/ops/dispatch/OperatorForms.h"

namespace torch_backend {
namespace {

// Since torch 2.15 a bound that lies outside of the dtype, and so holds for all its values, is as good as none.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15
constexpr bool kBoundsSaturate = false;
#else
constexpr bool kBoundsSaturate = true;
#endif

/// Of other numbers PyTorch makes tensors, whose values wrap: it calls them as it calls its tensors.
bool is_converted(const c10::Argument& argument) {
  const auto optional = argument.type()->cast<c10::OptionalType>();
  const auto& type = optional ? optional->getElementType() : argument.type();
  const auto& name = argument.name();
  return type->kind() == c10::TypeKind::NumberType && name != "self" && name != "other" &&
         name.find("element") == std::string::npos;
}

/// What operators that are not PyTorch's do with numbers is not known.
Kernel::ConvertedNumbers converted_numbers_of(const std::string& overload) {
  const auto op = overload.starts_with("aten::") ? find_overload(overload) : std::nullopt;
  Kernel::ConvertedNumbers found;
  if (!op) {
    return found;
  }
  std::string_view name = op->schema().name();
  if (name.ends_with('_')) {
    name.remove_suffix(1);
  }
  found.wrap = !has_fact(Fact::kNumbersDoNotWrap, name);
  const auto& arguments = op->schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_converted(arguments[i])) {
      continue;
    }
    const uint64_t bit = uint64_t{1} << i;
    const auto given = c10::str(name, ' ', arguments[i].name());
    const auto bit_if = [&](Fact fact) { return has_fact(fact, given) ? bit : 0; };
    found.all |= bit;
    found.floating |= bit & ~bit_if(Fact::kNumberIsNoOperand);
    found.widened |= bit_if(Fact::kWideNumber);
    found.saturate_below |= kBoundsSaturate ? bit_if(Fact::kLowerBound) : 0;
    found.saturate_above |= kBoundsSaturate ? bit_if(Fact::kUpperBound) : 0;
  }
  return found;
}

} // namespace

Kernel::Kernel(std::string op, uint32_t flags)
    : op_(std::move(op)), flags_(flags), converted_numbers_(converted_numbers_of(op_)) {}

uint64_t Kernel::read_accepted_dtypes(c10::DeviceIndex device) const {
  const uint64_t types = dtypes_on(scalar_types_in(device_api().properties(device).dtype_mask));
  accepted_[static_cast<std::size_t>(device)].store(types, std::memory_order_relaxed);
  return types;
}

} // namespace torch_backend
