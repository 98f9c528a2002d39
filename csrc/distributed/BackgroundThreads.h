// Threads for what may wait: for other ranks, or in the callbacks of futures.
#pragma once

#include <chrono>
#include <functional>

namespace torch_backend {

/// Run `task`, which does not throw, in a thread that has nothing else to do. Threads are kept for later tasks, until the
/// process ends.
void run_in_background(std::function<void()> task);

/// Before the process's interpreter ends: wait for what runs, at most `limit`. Tasks hold tensors, and a thread that lets go
/// of one that the interpreter knows, and needs its lock, is ended by it, which ends the process. So what ends later is
/// never destroyed.
void finish_background(std::chrono::milliseconds limit);

} // namespace torch_backend
