// What torch.autocast does with single operators of the device, beyond PyTorch's own lists.
#pragma once

#include <map>
#include <string>

namespace torch_backend {

/// PyTorch's names: "lower_precision_fp", "fp32", "promote" (to the widest floating type among the arguments), and
/// "fallthrough" (arguments stay as they are).
///
/// From now on `overload` ("aten::linear", "acme::rotary") follows `policy` under autocast on the device; replaces an
/// earlier policy and what PyTorch's lists say. Arguments that the operator writes to are never cast.
void set_autocast_policy(const std::string& overload, const std::string& policy);

/// Back to what held before set_autocast_policy: PyTorch's lists. Does nothing without one.
void reset_autocast_policy(const std::string& overload);

/// PyTorch's lists, as this version of it has them: overload -> policy. Besides the names above there is
/// "fp32_set_opt_dtype": float32 results through the operator's own dtype argument, or by casting.
std::map<std::string, std::string> autocast_defaults();

} // namespace torch_backend
