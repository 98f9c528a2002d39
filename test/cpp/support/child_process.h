// Runs code that may crash or hang in a process of its own.
#pragma once

#include <functional>

namespace torch_backend::testing {

constexpr int kSegmentationFault = 200;
constexpr int kHang = 201;
constexpr int kCrash = 202;

// Forks, runs `code`, and leaves through exit(), static destructors included. Returns what `code` returned (0 to 199),
// or one of the above.
int run_in_child(const std::function<int()>& code);

// Whether this is such a process.
bool in_child();

} // namespace torch_backend::testing
