// Which kernel source serves an operator of the active device, and how often it was called.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_backend {

/// Where an operator's kernel comes from; `kUnavailable` means that a call raises.
enum class Source { kPlugin, kGenerated, kNative, kAten, kExtension, kComposite, kFallback, kUnavailable };

/// "plugin": the device library's own, through the table "kernels.1"; "generated": our text (codegen/kernels), compiled by
/// the device; "native": our own; "aten": ATen's CPU kernels called directly on device memory; "extension": registered by
/// someone else; "composite": made of other operators; "fallback": the CPU fallback; "unavailable".
const char* source_name(Source source);

/// What a registration says of itself to the dispatcher (its debug text), from which its source is read back: only the
/// dispatcher knows which of an operator's kernels is in force.
std::string registration_label(Source source);

/// What serves `op` now.
Source operator_source(const c10::OperatorHandle& op);

/// Every overload the dispatcher knows, e.g. "aten::add.Tensor".
std::map<std::string, Source> operator_sources();

/// Count every call that involves a tensor of the device from now on, in all threads. Starting clears the counts.
/// Costs some hundred nanoseconds a call while it is on.
void count_operator_calls(bool enable);

struct OperatorCalls {
  std::string overload;
  Source source;
  uint64_t calls;
};
/// Most calls first.
std::vector<OperatorCalls> operator_calls();

} // namespace torch_backend
