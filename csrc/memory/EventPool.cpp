#include "csrc/memory/EventPool.h"

namespace torch_backend {

EventPool::EventPool(DeviceApi& api, c10::DeviceIndex device)
    : api_(api), device_(device), reusable_(api.has_capability(device, TB_CAP_EVENT_RERECORD)) {}

EventPool::~EventPool() {
  for (auto* event : spare_) {
    api_.event_destroy(device_, event);
  }
}

tb_event* EventPool::take(c10::DeviceIndex device) {
  if (device == device_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!spare_.empty()) {
      auto* event = spare_.back();
      spare_.pop_back();
      return event;
    }
  }
  return api_.event_create(device, 0);
}

RecordedEvent EventPool::record(const StreamRef& stream) {
  RecordedEvent event;
  event.device = stream.device < 0 ? device_ : stream.device;
  event.handle = take(event.device);
  try {
    api_.event_record(event.device, event.handle, stream.handle);
  } catch (...) {
    give_back(event);
    throw;
  }
  return event;
}

void EventPool::give_back(RecordedEvent event) noexcept {
  if (!event.handle) {
    return;
  }
  if (reusable_ && event.device == device_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    spare_.push_back(event.handle);
  } else {
    api_.event_destroy(event.device, event.handle);
  }
}

} // namespace torch_backend
