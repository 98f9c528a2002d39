// The profiler of torch.autograd.profiler.profile(use_kineto=False): an event before and after every operator.

#include <memory>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "csrc/core/Event.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Status.h"
#include "csrc/core/Stream.h"
#include "csrc/profiler/PluginTrace.h"
#include "csrc/profiler/Profilers.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend::profiler {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

class EventProfiler final : public torch::profiler::impl::ProfilerStubs {
 public:
  /// Every out-parameter may be NULL.
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const auto index = current_device();
    if (device) {
      *device = index;
    }
    if (event) {
      auto recorded = std::make_shared<Event>(/*enable_timing=*/true);
      recorded->record(current_stream(index));
      *event = std::move(recorded);
    }
    if (cpu_ns) {
      *cpu_ns = now_ns();
    }
  }

  /// Microseconds.
  float elapsed(const ProfilerVoidEventStub* first, const ProfilerVoidEventStub* second) const override {
    const auto& start = *static_cast<const Event*>(first->get());
    const auto& end = *static_cast<const Event*>(second->get());
    start.synchronize();
    end.synchronize();
    return static_cast<float>(start.elapsed_ms(end) * 1e3);
  }

  void mark(const char* name) const override {
    rangePush(name);
    rangePop();
  }

  /// For the vendor's own tools, if the plugin has them.
  void rangePush(const char* name) const override {
    const auto* table = ranges();
    if (table && table->range_push(name) != TB_STATUS_OK) {
      take_error_text();
    }
  }

  void rangePop() const override {
    const auto* table = ranges();
    if (table && table->range_pop() != TB_STATUS_OK) {
      take_error_text();
    }
  }

  bool enabled() const override {
    return true;
  }

  void onEachDevice(std::function<void(int)> visit) const override {
    const auto before = current_device();
    for (int device = 0; device < device_count(); ++device) {
      set_device(static_cast<c10::DeviceIndex>(device));
      visit(device);
    }
    set_device(before);
  }

  void synchronize() const override {
    synchronize_device();
  }

 private:
  static const tb_profiler_table* ranges() {
    const auto* table = profiler_table();
    return table && table->range_push ? table : nullptr;
  }
};

} // namespace

void register_event_profiler() {
  static EventProfiler profiler;
  torch::profiler::impl::registerPrivateUse1Methods(&profiler);
}

} // namespace torch_backend::profiler

namespace torch_backend {

void register_profilers() {
  profiler::register_event_profiler();
  profiler::register_kineto_profiler();
}

} // namespace torch_backend
