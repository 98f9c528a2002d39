// The thread that looks after collectives nobody waits for on the host.
#pragma once

#include <functional>

namespace torch_backend {

/// Whether to call it again. `a_wait_has_failed`: some device failed one just now, which may have been told of a failure that
/// nobody is told twice; what the poll records is raised in its place. Does not throw.
using Poll = std::function<bool(bool a_wait_has_failed)>;

/// Call `poll` in the watchdog's thread, every kWatchIntervalMs and when a wait has failed, until it returns false.
void watch(Poll poll);

/// No more polls. At exit, before the device library's own end and before that of an interpreter whose lock a poll may need:
/// it lets go of tensors. A poll that does not return within a second is left behind.
void end_watch();

constexpr int kWatchIntervalMs = 20;

} // namespace torch_backend
