// Threads for what may wait: for other ranks, or in the callbacks of futures.
#pragma once

#include <functional>

namespace torch_backend {

/// Run `task`, which does not throw, in a thread that has nothing else to do. Threads are kept for later tasks, until the
/// process ends.
void run_in_background(std::function<void()> task);

} // namespace torch_backend
