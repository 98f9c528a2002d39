#include "csrc/ops/host/HostLaunch.h"

#include <memory>
#include <utility>

#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/graph/Capture.h"
#include "csrc/ops/tensor/Alias.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace {

struct Work {
  std::function<void()> function;
  int device;
  std::shared_ptr<profiler::HostTimes> times;
};

/// The plugin may run work on a thread of the user's that waits for it. While this lives, that thread's modes (autocast,
/// inference, tracing, profiling, ...) are those of a thread of the plugin, below autograd.
class DeviceThread {
 public:
  DeviceThread() {
    auto& state = c10::AutogradState::get_tls_state();
    state.set_grad_mode(true);
    state.set_inference_mode(false);
  }
  ~DeviceThread() {
    auto& state = c10::AutogradState::get_tls_state();
    state.set_grad_mode(grad_mode_);
    state.set_inference_mode(inference_mode_);
  }
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

 private:
  const bool grad_mode_ = c10::AutogradState::get_tls_state().get_grad_mode();
  const bool inference_mode_ = c10::AutogradState::get_tls_state().get_inference_mode();
  const c10::impl::ForceDispatchKeyGuard keys_{
      c10::default_included_set, c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView};
  const at::RecordFunctionGuard not_profiled_{false};
  const c10::WarningUtils::WarningHandlerGuard warnings_{nullptr};
  const CpuAllocatorRedirect allocator_{false};
};

/// From construction to destruction.
class Timed {
 public:
  explicit Timed(profiler::HostTimes* times) : times_(times) {
    if (times_) {
      times_->start_ns.store(profiler::now_ns(), std::memory_order_release);
    }
  }
  ~Timed() {
    if (times_) {
      times_->end_ns.store(profiler::now_ns(), std::memory_order_release);
    }
  }

 private:
  profiler::HostTimes* times_;
};

void run(void* arg) {
  const std::unique_ptr<Work> work(static_cast<Work*>(arg));
  const Timed timed(work->times.get());
  try {
    const DeviceThread device_thread;
    work->function();
  } catch (...) {
    record_async_error(work->device, std::current_exception());
  }
}

struct KeptWork {
  std::function<void()> function;
  int device;
};

/// Of a graph that the plugin replays: called once per launch.
void run_again(void* arg) {
  const auto* work = static_cast<KeptWork*>(arg);
  try {
    const DeviceThread device_thread;
    work->function();
  } catch (...) {
    record_async_error(work->device, std::current_exception());
  }
}

void capture_host_work(graph::Capture& capture, const Stream& stream, std::string_view name,
                       std::function<void()> function) {
  if (!capture.native()) {
    capture.add(std::string(name), [name = std::string(name), function = std::move(function)](const Stream& on) {
      enqueue_host_work(on, name, function);
    });
    return;
  }
  auto work = std::make_shared<KeptWork>(KeptWork{std::move(function), stream.device_index()});
  device_api().stream_host_function(stream.device_index(), stream.handle(), run_again, work.get());
  capture.keep(std::move(work));
}

} // namespace

void enqueue_host_work(const Stream& stream, std::string_view name, std::function<void()> function) {
  if (const auto capture = graph::capture_of(stream)) {
    capture_host_work(*capture, stream, name, std::move(function));
    return;
  }
  auto work =
      std::make_unique<Work>(Work{std::move(function), stream.device_index(), profiler::expect_host_kernel(name)});
  device_api().stream_host_function(stream.device_index(), stream.handle(), run, work.get());
  work.release(); // `run`, which is called exactly once, deletes it
}

} // namespace torch_backend
