// A launch from a kernel that has tensors rather than a plugin's arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/Stream.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Rehearsal.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend::compiled {

inline tb_kernel_context context_of(const at::Tensor& tensor) {
  tb_kernel_context context{};
  context.device = tensor.device().index();
  context.stream = current_stream(tensor.device().index()).handle();
  return context;
}

/// `run(context)` finds the kernel and runs it, on the current stream of the tensor's device.
template <class Run>
void enqueue_kernel(const at::Tensor& like, const char* name, Run run) {
  const c10::DeviceGuard guard(like.device());
  const auto context = context_of(like);
  CallSpan span("kernel_launch", context.device);
  span.kernel(context.stream, name);
  run(context);
  span.enqueued();
}

/// `run(Launch&)` adds the parameters and runs the kernel.
template <class Run>
void enqueue(const at::Tensor& like, const char* name, Run run) {
  if (!Rehearsal::goes_ahead()) {
    return;
  }
  enqueue_kernel(like, name, [&](const tb_kernel_context& context) {
    Launch launch(context);
    run(launch);
  });
}

} // namespace torch_backend::compiled
