// The thread that looks after collectives nobody waits for on the host.
#pragma once

#include <functional>

namespace torch_backend {

/// Call `poll`, which does not throw, every kWatchIntervalMs in the watchdog's thread until it returns false; and at
/// once when a device fails a wait, which then raises what the poll has recorded.
void watch(std::function<bool()> poll);

/// No more polls. At exit, before the device library's own end and before that of an interpreter whose lock a poll may need:
/// it lets go of tensors. A poll that does not return within a second is left behind.
void end_watch();

constexpr int kWatchIntervalMs = 20;

} // namespace torch_backend
