// Plugin events that tell when a stream is done with a freed block.
#pragma once

#include <mutex>
#include <vector>

#include "csrc/core/DeviceApi.h"
#include "csrc/memory/Block.h"

namespace torch_backend {

/// A recorded event. NULL, and complete, on synchronous devices.
struct RecordedEvent {
  tb_event* handle = nullptr;
  c10::DeviceIndex device = -1;
};

/// Records events, and keeps complete ones for the next time where the plugin allows it. Calls the plugin, so no lock
/// of the allocator may be held; its own mutex guards only the spare events and is not held during plugin calls.
class EventPool {
 public:
  EventPool(DeviceApi& api, c10::DeviceIndex device);
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// An event after everything enqueued on `stream`, which may be of another device.
  RecordedEvent record(const StreamRef& stream);
  /// `event` is complete, or will not be waited for.
  void give_back(RecordedEvent event) noexcept;

 private:
  tb_event* take(c10::DeviceIndex device);

  DeviceApi& api_;
  const c10::DeviceIndex device_;
  const bool reusable_;
  std::mutex mutex_;             // guards spare_
  std::vector<tb_event*> spare_; // of device_
};

} // namespace torch_backend
