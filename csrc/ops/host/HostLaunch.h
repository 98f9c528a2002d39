// Work of the host that runs in stream order.
#pragma once

#include <functional>
#include <string_view>

#include "csrc/core/Capture.h"
#include "csrc/core/Stream.h"

namespace torch_backend {

/// Run `work` after what is on `stream`; what follows on it waits. Runs on a thread of the plugin's choice, which may be one
/// that waits for the stream; `work` does not see that thread's modes. It may use device memory in place (the device must be
/// host-coherent) and must not use the device otherwise. What it throws is raised by the next wait for the device. `name` is
/// what a profiler shows. On a capturing stream `work` runs at each launch of the graph.
void enqueue_host_work(const Stream& stream, std::string_view name, std::function<void()> work);

/// Called by the thread that launches a graph; what it returns runs in stream order, as by enqueue_host_work.
using PrepareLaunch = std::function<std::function<void()>()>;

/// The same on a stream of `capture`, for work that is another one at each launch.
void capture_host_work(graph::Capture& capture, const Stream& stream, std::string_view name, PrepareLaunch prepare);

} // namespace torch_backend
