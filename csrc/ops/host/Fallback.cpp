#include "csrc/ops/host/Fallback.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/host/BoxedCall.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/host/layouts/Layout.h"
#include "csrc/ops/tensor/StorageOf.h"
#include "csrc/ops/tensor/Transfer.h"

namespace torch_backend {
namespace {

struct OperatorInfo {
  explicit OperatorInfo(const c10::OperatorHandle& op) : traits(op) {}

  const OperatorTraits traits;
  std::atomic<FallbackPolicy> policy{FallbackPolicy::kAllow};
  std::atomic<uint64_t> policy_version{~uint64_t{0}};
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> nanoseconds{0};
};

struct State {
  std::shared_mutex mutex; // guards infos, retired
  std::unordered_map<c10::OperatorHandle, std::unique_ptr<OperatorInfo>> infos;
  std::vector<std::unique_ptr<OperatorInfo>> retired; // of operators that are gone; graphs may name them still
  std::mutex policy_mutex;                            // guards policies
  std::map<std::string, FallbackPolicy> policies;
  std::atomic<uint64_t> policy_version{0};
};

State& state() {
  static auto* instance = new State;
  return *instance;
}

OperatorInfo& info_of(const c10::OperatorHandle& op) {
  auto& all = state();
  {
    const std::shared_lock<std::shared_mutex> lock(all.mutex);
    const auto found = all.infos.find(op);
    if (found != all.infos.end() && *found->second->traits.still_defined) {
      return *found->second;
    }
  }
  auto info = std::make_unique<OperatorInfo>(op);
  const std::unique_lock<std::shared_mutex> lock(all.mutex);
  auto& kept = all.infos[op];
  if (!kept || !*kept->traits.still_defined) { // not another thread's
    std::swap(kept, info);
    if (info) {
      all.retired.push_back(std::move(info));
    }
  }
  return *kept;
}

FallbackPolicy policy_of(OperatorInfo& info) {
  auto& all = state();
  const auto version = all.policy_version.load(std::memory_order_acquire);
  if (info.policy_version.load(std::memory_order_acquire) != version) {
    const std::lock_guard<std::mutex> lock(all.policy_mutex);
    auto policy = FallbackPolicy::kAllow;
    for (const auto* key : {"", info.traits.name.c_str(), info.traits.overload.c_str()}) {
      const auto found = all.policies.find(key);
      policy = found != all.policies.end() ? found->second : policy;
    }
    info.policy.store(policy, std::memory_order_relaxed);
    info.policy_version.store(version, std::memory_order_release);
  }
  return info.policy.load(std::memory_order_relaxed);
}

void check_cpu_has_kernel(const c10::OperatorHandle& op, const OperatorInfo& info, c10::DispatchKey host_key) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(host_key), "Could not run '", info.traits.overload,
                              "' with ", layout_name(host_key), host_key == c10::DispatchKey::CPU ? "" : " ",
                              "tensors on ", device_api().name(),
                              ": the device has no kernel for it and neither has the CPU.");
}

void apply_policy(OperatorInfo& info) {
  const auto& device = device_api().name();
  switch (policy_of(info)) {
    case FallbackPolicy::kAllow:
      break;
    case FallbackPolicy::kWarn:
      TORCH_WARN(info.traits.overload, " has no kernel for ", device, " and falls back to the CPU.");
      break;
    case FallbackPolicy::kError:
      TORCH_CHECK_NOT_IMPLEMENTED(false, info.traits.overload, " has no kernel for ", device,
                                  " and the fallback policy forbids to run it on the CPU. Allow it with "
                                  "torch_backend.fallback.set_policy('",
                                  info.traits.overload, "', 'allow').");
  }
}

/// Before a policy forbids the call: that would not help with what nobody can read.
void check_have_memory(const c10::OperatorHandle& op, const OperatorInfo& info, const torch::jit::Stack& stack) {
  const auto check = [&](const at::Tensor& tensor) {
    if (tensor.defined() && on_device(tensor) && tensor.layout() == at::kStrided) {
      check_has_memory(*tensor.unsafeGetTensorImpl(), info.traits.overload.c_str());
    }
  };
  for (const auto& argument : torch::jit::last(stack, op.schema().arguments().size())) {
    if (argument.isTensor()) {
      check(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorList()) {
        check(tensor);
      }
    }
  }
}

void count(OperatorInfo& info, c10::function_ref<uint64_t()> run) {
  apply_policy(info);
  info.calls.fetch_add(1, std::memory_order_relaxed);
  const auto start = std::chrono::steady_clock::now();
  info.bytes.fetch_add(run(), std::memory_order_relaxed);
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - start;
  info.nanoseconds.fetch_add(static_cast<uint64_t>(taken.count()), std::memory_order_relaxed);
}

} // namespace

void set_fallback_policy(const std::string& op, FallbackPolicy policy) {
  auto& all = state();
  const std::lock_guard<std::mutex> lock(all.policy_mutex);
  all.policies[op] = policy;
  all.policy_version.fetch_add(1, std::memory_order_release);
}

void clear_fallback_policy(const std::string& op) {
  auto& all = state();
  const std::lock_guard<std::mutex> lock(all.policy_mutex);
  all.policies.erase(op);
  all.policy_version.fetch_add(1, std::memory_order_release);
}

std::map<std::string, FallbackPolicy> fallback_policies() {
  auto& all = state();
  const std::lock_guard<std::mutex> lock(all.policy_mutex);
  return all.policies;
}

std::vector<FallbackCount> fallback_report() {
  auto& all = state();
  const std::shared_lock<std::shared_mutex> lock(all.mutex);
  std::vector<FallbackCount> report;
  for (const auto& [op, info] : all.infos) {
    if (const auto calls = info->calls.load()) {
      report.push_back({info->traits.overload, calls, info->bytes.load(), info->nanoseconds.load()});
    }
  }
  std::sort(report.begin(), report.end(), [](const auto& a, const auto& b) {
    return a.calls != b.calls ? a.calls > b.calls : a.overload < b.overload;
  });
  return report;
}

void reset_fallback_report() {
  auto& all = state();
  const std::shared_lock<std::shared_mutex> lock(all.mutex);
  for (const auto& [op, info] : all.infos) {
    info->calls.store(0);
    info->bytes.store(0);
    info->nanoseconds.store(0);
  }
}

void cpu_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  layout_fallback(op, c10::DispatchKey::CPU, stack);
}

void layout_fallback(const c10::OperatorHandle& op, c10::DispatchKey host_key, torch::jit::Stack* stack) {
  auto& info = info_of(op);
  check_cpu_has_kernel(op, info, host_key);
  if (policy_of(info) != FallbackPolicy::kAllow) {
    check_have_memory(op, info, *stack);
  }
  count(info, [&] { return call_on_host(op, info.traits, stack, host_key); });
}

void count_fallback(const c10::OperatorHandle& op, c10::function_ref<uint64_t()> run) {
  count(info_of(op), run);
}

void call_aten_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!runs_on_aliased_memory()) {
    cpu_fallback(op, keys, stack);
    return;
  }
  call_on_host(op, info_of(op).traits, stack);
}

} // namespace torch_backend
