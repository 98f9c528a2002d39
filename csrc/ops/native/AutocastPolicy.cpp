#include "csrc/ops/native/AutocastPolicy.h"

#include <memory>
#include <mutex>
#include <unordered_map>

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace torch_backend {
namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;
constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;

/// An operator's arguments on the stack that may be cast: those it does not write to.
template <class Visitor>
void for_each_input(const c10::OperatorHandle& op, torch::jit::Stack& stack, Visitor&& visit) {
  const auto& arguments = op.schema().arguments();
  const auto first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) {
      visit(stack[first + i]);
    }
  }
}

void cast_value(c10::IValue& value, c10::ScalarType dtype) {
  using at::autocast::cached_cast;
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      value = cached_cast(dtype, value.toTensor(), kDevice);
    }
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> cast;
    for (const at::Tensor& tensor : value.toTensorList()) {
      cast.push_back(cached_cast(dtype, tensor, kDevice));
    }
    value = std::move(cast);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> cast;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      cast.push_back(cached_cast(dtype, tensor, kDevice));
    }
    value = std::move(cast);
  }
}

c10::ScalarType widest(c10::ScalarType dtype, const c10::IValue& value) {
  const auto consider = [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      dtype = at::autocast::prioritize(dtype, tensor, kDevice);
    }
  };
  if (value.isTensor()) {
    consider(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      consider(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      if (tensor.has_value()) {
        consider(*tensor);
      }
    }
  }
  return dtype;
}

void cast_and_call(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::ScalarType dtype) {
  for_each_input(op, *stack, [&](c10::IValue& value) { cast_value(value, dtype); });
  op.callBoxed(stack);
}

void lower_precision_fp(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
  cast_and_call(op, stack, at::autocast::get_lower_precision_fp_from_device_type(kDevice));
}

void fp32(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
  cast_and_call(op, stack, at::kFloat);
}

void promote(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
  auto dtype = at::autocast::get_lower_precision_fp_from_device_type(kDevice);
  for_each_input(op, *stack, [&](const c10::IValue& value) { dtype = widest(dtype, value); });
  cast_and_call(op, stack, dtype);
}

torch::CppFunction kernel_of(const std::string& policy) {
  if (policy == "lower_precision_fp") {
    return torch::CppFunction::makeFromBoxedFunction<&lower_precision_fp>();
  }
  if (policy == "fp32") {
    return torch::CppFunction::makeFromBoxedFunction<&fp32>();
  }
  if (policy == "promote") {
    return torch::CppFunction::makeFromBoxedFunction<&promote>();
  }
  TORCH_CHECK_VALUE(policy == "fallthrough", "'", policy,
                    "' is no autocast policy; there are lower_precision_fp, fp32, promote and fallthrough.");
  return torch::CppFunction::makeFallthrough();
}

struct Policies {
  std::mutex mutex; // guards registrations
  // A library per overload, because a library takes back all its registrations at once.
  std::unordered_map<std::string, std::unique_ptr<torch::Library>> registrations;
};

Policies& policies() {
  static auto* instance = new Policies;
  return *instance;
}

} // namespace

void set_autocast_policy(const std::string& overload, const std::string& policy) {
  auto kernel = kernel_of(policy);
  const auto colons = overload.find("::");
  TORCH_CHECK_VALUE(colons != std::string::npos, "'", overload, "' names no operator; write namespace::name.overload.");
  auto library =
      std::make_unique<torch::Library>(torch::Library::IMPL, overload.substr(0, colons), kKey, __FILE__, __LINE__);
  auto& all = policies();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.registrations.erase(overload);
  library->impl(overload.c_str() + colons + 2, std::move(kernel));
  all.registrations.emplace(overload, std::move(library));
}

void reset_autocast_policy(const std::string& overload) {
  auto& all = policies();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.registrations.erase(overload);
}

std::map<std::string, std::string> autocast_defaults() {
  std::map<std::string, std::string> defaults;
  const auto add = [&](std::string name, const char* policy) { // "pow, Tensor_Scalar" or "pow"
    if (const auto comma = name.find(", "); comma != std::string::npos) {
      name.replace(comma, 2, ".");
    }
    defaults.emplace("aten::" + name, policy);
  };
#define TB_LOWER_PRECISION(...) add(#__VA_ARGS__, "lower_precision_fp");
#define TB_FP32(...) add(#__VA_ARGS__, "fp32");
#define TB_FP32_SET_OPT_DTYPE(...) add(#__VA_ARGS__, "fp32_set_opt_dtype");
#define TB_DIFFERENT_SIGNATURE(function, name, signature, redispatch, policy) add(name, "fp32_set_opt_dtype");
#define TB_PROMOTE(...) add(#__VA_ARGS__, "promote");
  AT_FORALL_LOWER_PRECISION_FP(TB_LOWER_PRECISION)
  AT_FORALL_FP32(TB_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TB_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(TB_DIFFERENT_SIGNATURE)
  AT_FORALL_PROMOTE(TB_PROMOTE)
#undef TB_LOWER_PRECISION
#undef TB_FP32
#undef TB_FP32_SET_OPT_DTYPE
#undef TB_DIFFERENT_SIGNATURE
#undef TB_PROMOTE
  return defaults;
}

} // namespace torch_backend
