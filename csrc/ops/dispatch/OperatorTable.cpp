#include "csrc/ops/dispatch/OperatorTable.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/dispatch/Registrar.h"

namespace torch_backend {
namespace {

struct Table {
  std::mutex mutex; // guards counts
  std::unordered_map<c10::OperatorName, uint64_t> counts;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
};

Table& table() {
  static auto* instance = new Table;
  return *instance;
}

constexpr const char* kLabel = "torch_backend, source: ";

/// The line that the dispatcher prints of the kernel in force for `key`; empty if there is none.
std::string registration_line(const c10::OperatorHandle& op, c10::DispatchKey key) {
  const std::string state = op.dumpState();
  const std::string start = std::string("\n") + c10::toString(key) + ": ";
  const auto found = state.find(start);
  if (found == std::string::npos) {
    return {};
  }
  const auto begin = found + start.size();
  return state.substr(begin, state.find('\n', begin) - begin);
}

Source registered_source(const c10::OperatorHandle& op) {
  const std::string line = registration_line(op, c10::DispatchKey::PrivateUse1);
  for (const auto source : {Source::kPlugin, Source::kGenerated, Source::kNative, Source::kAten, Source::kComposite}) {
    const std::string label = registration_label(source);
    if (line.compare(0, label.size(), label) == 0) {
      // Typed kernels hand over to the fallback where device memory cannot be used in place.
      return source == Source::kAten && !device_api().host_access() ? Source::kFallback : source;
    }
  }
  return Source::kExtension;
}

bool involves_device(const at::RecordFunction& function) {
  const auto is_on_device = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
  };
  for (const auto& value : function.inputs()) {
    if (value.isTensor() && is_on_device(value.toTensor())) {
      return true;
    }
    if (value.isDevice() && value.toDevice().is_privateuseone()) {
      return true;
    }
    if (value.isTensorList()) {
      const auto list = value.toTensorList();
      if (std::any_of(list.begin(), list.end(), [&](const at::Tensor& tensor) { return is_on_device(tensor); })) {
        return true;
      }
    }
  }
  return false;
}

std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  if (name.has_value() && involves_device(function)) {
    auto& all = table();
    const std::lock_guard<std::mutex> lock(all.mutex);
    ++all.counts[*name];
  }
  return nullptr;
}

} // namespace

const char* source_name(Source source) {
  switch (source) {
    case Source::kPlugin:
      return "plugin";
    case Source::kGenerated:
      return "generated";
    case Source::kNative:
      return "native";
    case Source::kAten:
      return "aten";
    case Source::kExtension:
      return "extension";
    case Source::kComposite:
      return "composite";
    case Source::kFallback:
      return "fallback";
    case Source::kUnavailable:
      return "unavailable";
  }
  return "unavailable";
}

std::string registration_label(Source source) {
  return std::string(kLabel) + source_name(source);
}

Source operator_source(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    return registered_source(op);
  }
  // Not hasComputedKernelForDispatchKey(PrivateUse1): with a backend fallback that is true of every operator.
  for (const auto key : {c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::CompositeExplicitAutograd,
                         c10::DispatchKey::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) {
      return Source::kComposite;
    }
  }
  if (has_foreign_fallback(c10::DispatchKey::PrivateUse1)) {
    return Source::kExtension;
  }
  return op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) ? Source::kFallback : Source::kUnavailable;
}

std::map<std::string, Source> operator_sources() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::map<std::string, Source> sources;
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (const auto op = dispatcher.findSchema(name)) {
      sources.emplace(c10::toString(name), operator_source(*op));
    }
  }
  return sources;
}

void count_operator_calls(bool enable) {
  auto& all = table();
  at::CallbackHandle before;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    before = std::exchange(all.callback, at::INVALID_CALLBACK_HANDLE);
    if (enable) {
      all.counts.clear();
    }
  }
  if (before != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(before);
  }
  if (enable) {
    const auto handle = at::addGlobalCallback(
        at::RecordFunctionCallback(on_call).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.callback = handle;
  }
}

std::vector<OperatorCalls> operator_calls() {
  auto& dispatcher = c10::Dispatcher::singleton();
  auto& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<OperatorCalls> calls;
  for (const auto& [name, count] : all.counts) {
    if (const auto op = dispatcher.findSchema(name)) {
      calls.push_back({c10::toString(name), operator_source(*op), count});
    }
  }
  std::sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
    return a.calls != b.calls ? a.calls > b.calls : a.overload < b.overload;
  });
  return calls;
}

} // namespace torch_backend
