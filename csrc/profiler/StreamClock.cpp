#include "csrc/profiler/StreamClock.h"

#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"

namespace torch_backend::profiler {

Mark::Mark(int device, tb_stream* stream) : device_(device), stream_(stream) {
  auto& api = device_api();
  if (api.has_capability(device, TB_CAP_EVENT_TIMING)) {
    event_ = api.event_create(device, TB_EVENT_TIMING);
    try {
      api.event_record(device, event_, stream);
    } catch (...) {
      api.event_destroy(device, event_);
      throw;
    }
    return;
  }
  time_ = std::make_shared<HostTimes>();
  auto argument = std::make_unique<std::shared_ptr<HostTimes>>(time_);
  const auto stamp = [](void* arg) {
    const std::unique_ptr<std::shared_ptr<HostTimes>> time(static_cast<std::shared_ptr<HostTimes>*>(arg));
    (*time)->start_ns.store(now_ns(), std::memory_order_release);
  };
  api.stream_host_function(device, stream, stamp, argument.get());
  argument.release(); // the function, called exactly once, deletes it
}

Mark::~Mark() {
  if (event_) {
    device_api().event_destroy(device_, event_);
  }
}

void Mark::wait() const {
  auto& api = device_api();
  if (event_) {
    api.event_synchronize(device_, event_);
  } else if (time_->start_ns.load(std::memory_order_acquire) == 0) {
    api.stream_synchronize(device_, stream_);
  }
}

StreamClock::StreamClock(int device) : device_(device) {}

void StreamClock::place() {
  // The shortest of some tries: the event completed between the two looks at the host's clock.
  constexpr int kTries = 5;
  int64_t shortest_ns = 0;
  for (int i = 0; i < kTries; ++i) {
    const int64_t before = now_ns();
    auto mark = std::make_unique<Mark>(device_, nullptr);
    mark->wait();
    const int64_t after = now_ns();
    if (!anchor_ || after - before < shortest_ns) {
      shortest_ns = after - before;
      anchor_ns_ = before + shortest_ns / 2;
      anchor_ = std::move(mark);
    }
  }
}

int64_t StreamClock::read(const Mark& mark) {
  if (!mark.event_) {
    return mark.time_->start_ns.load(std::memory_order_acquire);
  }
  if (!anchor_) {
    place();
  }
  return anchor_ns_ - device_api().event_elapsed(device_, mark.event_, anchor_->event_);
}

} // namespace torch_backend::profiler
