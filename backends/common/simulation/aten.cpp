#include "aten.h"

#include <algorithm>
#include <cstring>

#include "rules.h"

namespace sim {

int compute(const char* name, int failed, char* workspace, uint64_t workspace_bytes, const body& run,
            tensors& operands) {
  constexpr char kWritten = 0x5A;
  if (workspace) std::memset(workspace, kWritten, workspace_bytes);
  const at::AutoDispatchBelowAutograd without_autograd;
  try {
    run(operands);
  } catch (const c10::Error& e) {
    return refuse(failed, "%s: %s", name, e.what_without_backtrace());
  }
  if (workspace && std::any_of(workspace, workspace + workspace_bytes, [](char c) { return c != kWritten; }))
    return refuse(failed, "%s: somebody else wrote the workspace", name);
  return 0;
}

at::Tensor rounded(const at::Tensor& x, int bits) {
  const auto [significand, exponent] = at::frexp(x);
  return at::ldexp(at::round(significand * (2 << bits)), exponent - (bits + 1));
}

} // namespace sim
