#include "csrc/distributed/StepTimer.h"

#include <array>
#include <mutex>
#include <optional>

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "csrc/core/Event.h"
#include "csrc/core/Stream.h"

namespace torch_backend {
namespace {

/// Points in a step as events, because the host is ahead of an asynchronous device.
class StepTimer final : public c10d::Timer {
 public:
  explicit StepTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event); // the host's time, which is logged too
    auto& point = points_[static_cast<std::size_t>(event)];
    if (!point) {
      point.emplace(/*enable_timing=*/true);
    }
    point->record(current_stream(device_.index()));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto& from = points_[static_cast<std::size_t>(start)];
    const auto& to = points_[static_cast<std::size_t>(end)];
    if (!from || !to || !getTimestamp(start) || !getTimestamp(end)) {
      return std::nullopt;
    }
    from->synchronize();
    to->synchronize();
    const auto elapsed_ns = static_cast<int64_t>(from->elapsed_ms(*to) * 1e6);
    // Of another step: not every step records all points.
    return elapsed_ns < 0 ? std::nullopt : std::optional<int64_t>(elapsed_ns);
  }

 private:
  c10::Device device_;
  std::array<std::optional<torch_backend::Event>, 5> points_;
};

} // namespace

void register_step_timer() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (!c10d::TimerRegistry()->Has(c10::DeviceType::PrivateUse1)) {
      c10d::TimerRegistry()->Register(c10::DeviceType::PrivateUse1, [](c10::Device device) {
        return std::unique_ptr<c10d::Timer>(new StepTimer(device));
      });
    }
  });
}

} // namespace torch_backend
