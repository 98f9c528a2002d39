#include "csrc/ops/host/HostLaunch.h"

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"
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

void run(const Work& work) {
  const Timed timed(work.times.get());
  try {
    const DeviceThread device_thread;
    work.function();
  } catch (...) {
    record_async_error(work.device, std::current_exception());
  }
}

void run_once(void* arg) {
  run(*std::unique_ptr<Work>(static_cast<Work*>(arg)));
}

class RecordedWork final : public graph::Recorded {
 public:
  RecordedWork(std::string_view name, PrepareLaunch prepare, int device)
      : name_(name), prepare_(std::move(prepare)), device_(device) {}

  void begin_launch(const Stream& stream) override {
    Work next{prepare_(), device_, profiler::begin_recorded_kernel(name_, device_, stream.handle())};
    const std::lock_guard<std::mutex> lock(mutex_);
    launches_.push_back(std::move(next));
  }
  void cancel_launch() noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    launches_.pop_back();
  }
  static void run_next(void* arg) {
    run(static_cast<RecordedWork*>(arg)->take_next());
  }

 private:
  Work take_next() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (launches_.empty()) {
      return {[this] {
                TORCH_CHECK(false, device_api().name(), " has run ", name_, ", which a graph holds, without a launch.");
              },
              device_, nullptr};
    }
    Work next = std::move(launches_.front());
    launches_.pop_front();
    return next;
  }

  const std::string name_;
  const PrepareLaunch prepare_;
  const int device_;
  std::mutex mutex_; // guards launches_
  std::deque<Work> launches_;
};

} // namespace

void capture_host_work(graph::Capture& capture, const Stream& stream, std::string_view name, PrepareLaunch prepare) {
  auto work = std::make_shared<RecordedWork>(name, std::move(prepare), stream.device_index());
  device_api().stream_host_function(stream.device_index(), stream.handle(), RecordedWork::run_next, work.get());
  capture.add_step(std::string(name));
  capture.keep(std::move(work));
}

void enqueue_host_work(const Stream& stream, std::string_view name, std::function<void()> function) {
  if (const auto capture = graph::capture_of(stream)) {
    const auto shared = std::make_shared<const std::function<void()>>(std::move(function));
    capture_host_work(*capture, stream, name, [shared] { return [shared] { (*shared)(); }; });
    return;
  }
  auto work =
      std::make_unique<Work>(Work{std::move(function), stream.device_index(), profiler::expect_host_kernel(name)});
  device_api().stream_host_function(stream.device_index(), stream.handle(), run_once, work.get());
  work.release(); // `run_once`, which is called exactly once, deletes it
}

} // namespace torch_backend
