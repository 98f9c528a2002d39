// The CPU fallback: counted, named, and to be forbidden per operator.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

namespace torch_backend {

enum class FallbackPolicy { kAllow, kWarn, kError };

/// `op`: an overload ("aten::sort.stable"), an operator ("aten::sort", all its overloads), or "" for every operator
/// without a policy of its own. Overload beats operator beats "". Threads: any.
void set_fallback_policy(const std::string& op, FallbackPolicy policy);
void clear_fallback_policy(const std::string& op);
std::map<std::string, FallbackPolicy> fallback_policies();

struct FallbackCount {
  std::string overload;
  uint64_t calls;
  uint64_t bytes_copied; // between device and host; 0 where memory is aliased
  uint64_t nanoseconds;  // of the host, copies and waiting for the device included
};
/// What fell back since the last reset, most calls first.
std::vector<FallbackCount> fallback_report();
void reset_fallback_report();

/// The kernel for every operator without another: runs it on the CPU. Results are on the device, in-place and out=
/// arguments are the same tensors afterwards, generators are the device's.
void cpu_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Count what `run` does, which returns the bytes that it copied, as a fallback of `op`; the policy for `op` comes first.
void count_fallback(const c10::OperatorHandle& op, c10::function_ref<uint64_t()> run);

/// The same for an operator whose CPU kernel is registered for `host_key`, e.g. SparseCPU.
void layout_fallback(const c10::OperatorHandle& op, c10::DispatchKey host_key, torch::jit::Stack* stack);

/// The same as cpu_fallback for an operator that is served by its CPU kernel where device memory can be used in place; only elsewhere
/// it is a fallback and counts as one.
void call_aten_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

} // namespace torch_backend
