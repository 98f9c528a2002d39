#include "csrc/ops/kernel/RegisterKernels.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/dispatch/Libraries.h"
#include "csrc/ops/dispatch/NextSource.h"
#include "csrc/ops/dispatch/OperatorForms.h"
#include "csrc/ops/dispatch/OperatorTable.h"
#include "csrc/ops/kernel/BoxedKernel.h"
#include "csrc/ops/kernel/CompositeGradient.h"
#include "csrc/ops/kernel/KernelCall.h"
#include "csrc/ops/kernel/KernelTable.h"

namespace torch_backend {
namespace {

constexpr auto kKey = c10::DispatchKey::PrivateUse1;

using c10::TypeKind;

bool is_carried(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType:
    case TypeKind::NumberType:
    case TypeKind::IntType:
    case TypeKind::SymIntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::ComplexType:
    case TypeKind::StringType:
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
    case TypeKind::DeviceObjType:
    case TypeKind::GeneratorType:
      return true;
    case TypeKind::OptionalType:
      return is_carried(*type.castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::ListType: {
      const auto& element = *type.castRaw<c10::ListType>()->getElementType();
      if (element.kind() == TypeKind::OptionalType) {
        return element.castRaw<c10::OptionalType>()->getElementType()->kind() == TypeKind::TensorType;
      }
      return element.kind() == TypeKind::TensorType || element.kind() == TypeKind::IntType ||
             element.kind() == TypeKind::SymIntType || element.kind() == TypeKind::FloatType ||
             element.kind() == TypeKind::BoolType;
    }
    default:
      return false;
  }
}

bool is_list_of_numbers(const c10::Type& type) {
  return type.kind() == TypeKind::ListType &&
         type.castRaw<c10::ListType>()->getElementType()->kind() == TypeKind::NumberType;
}

/// Why the operator cannot be served by the kernel: what of its schema tb_arg cannot carry. Empty if it can.
std::string unservable_reason(const c10::OperatorHandle& op, const Kernel& kernel) {
  const auto& schema = op.schema();
  if (schema.arguments().size() + schema.returns().size() > KernelCall::kMaxArguments) {
    return c10::str("takes more than ", KernelCall::kMaxArguments, " arguments");
  }
  for (const auto& argument : schema.arguments()) {
    if (!is_carried(*argument.real_type()) &&
        !(kernel.has(kTakesNumberLists) && is_list_of_numbers(*argument.real_type()))) {
      return c10::str("takes ", argument.name(), " of type ", argument.real_type()->str());
    }
  }
  for (const auto& result : schema.returns()) {
    if (result.type()->kind() != TypeKind::TensorType && !result.type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      return c10::str("returns a ", result.type()->str());
    }
  }
  return {};
}

struct Offer {
  const Kernel* kernel;
  std::vector<OperatorForm> forms; // the one that the plugin names first
};

/// Returns the form's overload if the kernel serves it from now on.
std::vector<std::string> register_form(const Offer& offer, const OperatorForm& form) {
  if (form.op.hasKernelForDispatchKey(kKey)) {
    return {};
  }
  std::optional<OperatorForm> functional;
  for (const auto& candidate : offer.forms) {
    if (candidate.kind == FormKind::kFunctional && form.kind != FormKind::kFunctional) {
      functional.emplace(candidate);
    }
  }
  const auto& overload = form.traits.overload;
  auto kernel = std::make_unique<BoxedKernel>(*offer.kernel, form, functional, add_next_source(overload));
  library_for(form.op, kKey)
      .impl(overload.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel))
                                  .debug(registration_label(offer.kernel->source())));
  register_composite_gradient(form.op);
  return {overload};
}

std::vector<std::string> register_offers(const std::vector<Offer>& offers) {
  std::vector<std::string> served;
  const auto add = [&](std::vector<std::string> more) { served.insert(served.end(), more.begin(), more.end()); };
  // What the plugin names goes before what is derived from it.
  for (const auto& offer : offers) {
    add(register_form(offer, offer.forms.front()));
  }
  for (const auto& offer : offers) {
    for (std::size_t i = 1; i < offer.forms.size(); ++i) {
      add(register_form(offer, offer.forms[i]));
    }
  }
  return served;
}

void warn_of_unused(const std::vector<std::string>& unused) {
  if (!unused.empty()) {
    TORCH_WARN("Kernels of the device library of '", device_api().name(),
               "' that are not used with this version of PyTorch: ", c10::Join("; ", unused), ".");
  }
}

/// Why no program calls the kernel, though it is registered as far as that was possible; empty if programs do.
std::string why_not_called(const Offer& offer) {
  const auto& forms = offer.forms;
  const auto is_functional = [](const OperatorForm& form) { return form.kind == FormKind::kFunctional; };
  const auto is_served = [](const OperatorForm& form) { return operator_source(form.op) == Source::kPlugin; };
  if (std::none_of(forms.begin(), forms.end(), is_served)) {
    return "serves nothing, because somebody else has registered kernels for the operator";
  }
  const auto functional = std::find_if(forms.begin(), forms.end(), is_functional);
  if (functional != forms.end() && !is_served(*functional)) {
    return c10::str("does not serve ", functional->traits.overload,
                    ", for which somebody else has registered a kernel, and is called with out= arguments alone");
  }
  return {};
}

/// Overloads that only kernel_find knows.
std::vector<std::string> found_kernels(const OverloadIndex& index) {
  std::vector<std::string> names;
  if (has_kernel_finder()) {
    for (const auto& [name, overloads] : index.all()) {
      for (const auto& op : overloads) {
        names.push_back(c10::toString(op.operator_name()));
      }
    }
  }
  return names;
}

} // namespace

void register_kernels() {
  std::vector<std::string> names = listed_kernels();
  const std::set<std::string> listed(names.begin(), names.end());
  for (auto& name : added_kernels()) {
    if (listed.count(name) == 0) {
      names.push_back(std::move(name));
    }
  }
  if (names.empty() && !has_kernel_finder()) {
    return;
  }
  const auto is_listed = [&](const std::string& name) { return listed.count(name) != 0; };
  const OverloadIndex index;
  std::vector<std::string> unused;
  for (const auto& name : names) {
    // Operators of other namespaces may be defined later.
    if (name.rfind("aten::", 0) == 0 && is_listed(name) && !find_overload(name)) {
      unused.push_back(c10::str(name, " is not defined"));
    }
  }
  for (auto& name : found_kernels(index)) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  std::vector<Offer> offers;
  for (const auto& name : names) {
    if (name == "aten::copy_") {
      continue; // called where tensors are copied: Note [Ways to copy]
    }
    const auto op = find_overload(name);
    const auto* kernel = op ? find_kernel(name) : nullptr;
    if (!kernel) {
      continue;
    }
    const auto reason = unservable_reason(*op, *kernel);
    if (reason.empty()) {
      offers.push_back({kernel, forms_of(*op, index)});
    } else if (is_listed(name)) {
      unused.push_back(c10::str(name, ' ', reason, ", which a kernel's arguments cannot carry"));
    }
  }
  register_offers(offers);
  for (const auto& offer : offers) {
    const auto reason = is_listed(offer.kernel->op()) ? why_not_called(offer) : std::string();
    if (!reason.empty()) {
      unused.push_back(c10::str(offer.kernel->op(), ' ', reason));
    }
  }
  warn_of_unused(unused);
}

std::vector<std::string> register_kernel(const std::string& overload) {
  const auto& device = device_api().name();
  const auto op = find_overload(overload);
  TORCH_CHECK_VALUE(op, "There is no operator '", overload,
                    "'. Define it before its kernel is registered, and name its overload as in 'acme::scale.out'.");
  const auto* kernel = find_kernel(overload);
  TORCH_CHECK_VALUE(kernel, "The device library of '", device, "' has no kernel for '", overload, "'.");
  const auto reason = unservable_reason(*op, *kernel);
  TORCH_CHECK_VALUE(reason.empty(), "'", overload, "' ", reason, ", which a kernel's arguments cannot carry.");
  if (find_next_source(overload)) {
    return {};
  }
  TORCH_CHECK(!op->hasKernelForDispatchKey(kKey), "'", overload, "' has a kernel for ", device,
              " already, which somebody registered with PyTorch; the device library's is not used.");
  return register_offers({{kernel, forms_of(*op, OverloadIndex())}});
}

} // namespace torch_backend
