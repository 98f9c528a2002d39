// Threads for the callbacks of futures.
#pragma once

#include <functional>

namespace torch_backend {

/// Run `callback`, which does not throw, in a thread that has nothing else to do: a callback may wait for others. Threads
/// are kept for later callbacks, until the process ends.
void run_callback(std::function<void()> callback);

} // namespace torch_backend
