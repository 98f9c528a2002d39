// A point in a stream's work that host and streams can wait for, and that is a point in time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "csrc/core/Stream.h"

namespace torch_backend {

/// Bound to the device of the stream it is first recorded on. Movable, owns its plugin event. Threads: as c10::Event,
/// one thread at a time, except that query, synchronize and block may run concurrently.
class Event {
 public:
  explicit Event(bool enable_timing) : enable_timing_(enable_timing) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  /// Throws if the event belongs to another device than `stream`.
  void record(const Stream& stream);
  /// Work enqueued on `stream` from now on waits for the last record; the stream may be of another device.
  void block(const Stream& stream) const;
  /// True if never recorded.
  bool query() const;
  void synchronize() const;
  /// Milliseconds between the records of this event and `end`. Both must be recorded with timing, and complete.
  double elapsed_ms(const Event& end) const;

  bool recorded() const {
    return device_ >= 0;
  }
  c10::DeviceIndex device_index() const {
    return device_;
  }
  bool timing_enabled() const {
    return enable_timing_;
  }
  /// NULL on a synchronous device and before the first record.
  tb_event* handle() const {
    return handle_;
  }

 private:
  /// Host time of completion, for devices that cannot time events themselves. Shared with the enqueued host function,
  /// which may outlive the event.
  struct HostTime {
    std::atomic<int64_t> ns{0};
  };
  void release() noexcept;
  void refuse_captured(const char* what) const;
  bool device_times_events() const;

  bool enable_timing_;
  c10::DeviceIndex device_ = -1;
  uint64_t capture_ = 0; // id of the graph capture that the last record belongs to
  tb_event* handle_ = nullptr;
  std::shared_ptr<HostTime> host_time_;
};

} // namespace torch_backend
