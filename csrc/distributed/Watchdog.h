// The thread that looks after collectives nobody waits for on the host.
#pragma once

#include <functional>

namespace torch_backend {

/// Call `poll`, which does not throw, every kWatchIntervalMs in the watchdog's thread until it returns false.
void watch(std::function<bool()> poll);

constexpr int kWatchIntervalMs = 20;

} // namespace torch_backend
