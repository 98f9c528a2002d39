#include "csrc/core/Event.h"

#include <chrono>
#include <utility>

#include <c10/util/Exception.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace

Event::~Event() {
  release();
}

Event::Event(Event&& other) noexcept
    : enable_timing_(other.enable_timing_),
      device_(std::exchange(other.device_, -1)),
      capture_(other.capture_),
      handle_(std::exchange(other.handle_, nullptr)),
      host_time_(std::move(other.host_time_)) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    release();
    enable_timing_ = other.enable_timing_;
    device_ = std::exchange(other.device_, -1);
    capture_ = other.capture_;
    handle_ = std::exchange(other.handle_, nullptr);
    host_time_ = std::move(other.host_time_);
  }
  return *this;
}

void Event::release() noexcept {
  if (handle_) {
    device_api().event_destroy(device_, std::exchange(handle_, nullptr));
  }
}

bool Event::device_times_events() const {
  return device_api().has_capability(device_, TB_CAP_EVENT_TIMING);
}

void Event::record(const Stream& stream) {
  auto& api = device_api();
  TORCH_CHECK(!recorded() || device_ == stream.device_index(), "An event of ", api.name(), ":",
              static_cast<int>(device_), " cannot be recorded on a stream of ", stream.device(), ".");
  const auto device = stream.device_index();
  const auto capture = graph::capture_of(stream);
  if (handle_ && !api.has_capability(device, TB_CAP_EVENT_RERECORD)) {
    release();
  }
  if (!handle_) {
    // A device without the capability is never asked for times, and need not know the flag.
    const bool device_times = enable_timing_ && api.has_capability(device, TB_CAP_EVENT_TIMING);
    handle_ = api.event_create(device, device_times ? TB_EVENT_TIMING : 0);
  }
  device_ = device;
  if (enable_timing_ && !capture && !device_times_events()) {
    host_time_ = std::make_shared<HostTime>();
    if (api.async()) {
      auto shared = std::make_unique<std::shared_ptr<HostTime>>(host_time_);
      const auto stamp = [](void* arg) {
        const std::unique_ptr<std::shared_ptr<HostTime>> time(static_cast<std::shared_ptr<HostTime>*>(arg));
        (*time)->ns.store(now_ns(), std::memory_order_release);
      };
      api.stream_host_function(device, stream.handle(), stamp, shared.get());
      shared.release(); // the function, called exactly once, deletes it
    } else {
      host_time_->ns.store(now_ns(), std::memory_order_release);
    }
  }
  api.event_record(device, handle_, stream.handle());
  capture_ = capture ? capture->id() : 0;
}

void Event::refuse_captured(const char* what) const {
  if (const auto capture = capture_ != 0 ? graph::find_capture(capture_) : nullptr) {
    graph::refuse_in_capture(capture->origin(), what);
  }
}

void Event::block(const Stream& stream) const {
  const auto capture = capture_ != 0 ? graph::find_capture(capture_) : nullptr;
  TORCH_CHECK(capture_ == 0 || capture,
              "A stream cannot wait for an event that was recorded in a capture that is over.");
  if (recorded() && !capture) {
    graph::refuse_in_capture(stream, "Waiting for an event that was recorded outside of the capture");
  }
  if (capture && capture->origin().device_index() != stream.device_index()) {
    graph::detail::refuse(*capture, "Work of another device");
  }
  if (handle_) {
    device_api().stream_wait_event(stream.device_index(), stream.handle(), handle_);
  }
  if (capture) {
    capture->join(stream);
  }
}

bool Event::query() const {
  refuse_captured("Event.query");
  return !handle_ || device_api().event_query(device_, handle_);
}

void Event::synchronize() const {
  refuse_captured("Event.synchronize");
  if (handle_) {
    wait_and_raise_async_error(device_, [this] { device_api().event_synchronize(device_, handle_); });
  }
}

double Event::elapsed_ms(const Event& end) const {
  TORCH_CHECK_VALUE(enable_timing_ && end.enable_timing_,
                    "Both events must be created with enable_timing=True to measure the time between them.");
  TORCH_CHECK_VALUE(recorded() && end.recorded(),
                    "Both events must be recorded before the time between them can be measured.");
  TORCH_CHECK(capture_ == 0 && end.capture_ == 0,
              "Events that are recorded in a graph's capture cannot measure time: record events around its replay.");
  TORCH_CHECK_VALUE(device_ == end.device_, "The time between events of different devices cannot be measured.");
  TORCH_CHECK(query() && end.query(), "Both events must be completed before the time between them can be measured.");
  const int64_t elapsed_ns = device_times_events() ? device_api().event_elapsed(device_, handle_, end.handle_)
                                                   : end.host_time_->ns.load(std::memory_order_acquire) -
                                                         host_time_->ns.load(std::memory_order_acquire);
  return static_cast<double>(elapsed_ns) / 1e6;
}

} // namespace torch_backend
