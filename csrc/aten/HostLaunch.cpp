#include "csrc/aten/HostLaunch.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include "csrc/aten/Alias.h"
#include "csrc/core/AsyncError.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/graph/Capture.h"
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

void run_on_device_thread(const std::function<void()>& function, int device, profiler::HostTimes* times) {
  const Timed timed(times);
  try {
    const DeviceThread device_thread;
    function();
  } catch (...) {
    record_async_error(device, std::current_exception());
  }
}

void run(void* arg) {
  const std::unique_ptr<Work> work(static_cast<Work*>(arg));
  run_on_device_thread(work->function, work->device, work->times.get());
}

/// Of a graph: called once per launch.
class RecordedWork final : public graph::Recorded {
 public:
  RecordedWork(std::string name, std::function<void()> function, int device)
      : name_(std::move(name)), function_(std::move(function)), device_(device) {}

  void begin_launch(const Stream& stream) override {
    auto times = profiler::begin_recorded_kernel(name_, device_, stream.handle());
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_launches_;
    if (times) {
      times_.emplace(num_launches_, std::move(times));
    }
  }
  void cancel_launch() noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    times_.erase(num_launches_--);
  }

  static void run(void* arg) {
    auto& work = *static_cast<RecordedWork*>(arg);
    run_on_device_thread(work.function_, work.device_, work.next_times().get());
  }

 private:
  std::shared_ptr<profiler::HostTimes> next_times() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto times = times_.extract(++num_runs_);
    return times ? times.mapped() : nullptr;
  }

  const std::string name_;
  const std::function<void()> function_;
  const int device_;
  std::mutex mutex_; // guards what follows
  uint64_t num_launches_ = 0;
  uint64_t num_runs_ = 0;
  std::map<uint64_t, std::shared_ptr<profiler::HostTimes>> times_; // by launch, of those that a profiler saw
};

} // namespace

void enqueue_host_work(const Stream& stream, std::string_view name, std::function<void()> function) {
  if (const auto capture = graph::capture_of(stream)) {
    auto work = std::make_shared<RecordedWork>(std::string(name), std::move(function), stream.device_index());
    device_api().stream_host_function(stream.device_index(), stream.handle(), RecordedWork::run, work.get());
    capture->add_step(std::string(name));
    capture->keep(std::move(work));
    return;
  }
  auto work =
      std::make_unique<Work>(Work{std::move(function), stream.device_index(), profiler::expect_host_kernel(name)});
  device_api().stream_host_function(stream.device_index(), stream.handle(), run, work.get());
  work.release(); // `run`, which is called exactly once, deletes it
}

} // namespace torch_backend
