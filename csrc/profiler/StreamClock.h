// The time at which a stream gets to a point, as the host's clock.
#pragma once

#include <cstdint>
#include <memory>

#include "csrc/profiler/Recording.h"
#include "torch_backend/device.h"

namespace torch_backend::profiler {

/// A point on a stream of an asynchronous device. Owns its event.
class Mark {
 public:
  /// Enqueues it. Throws what the plugin reports.
  Mark(int device, tb_stream* stream);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /// Blocks until the stream has passed it. Throws what the plugin reports.
  void wait() const;
  /// Whether the device timed it, by an event, or the host, by a function on the stream.
  Clock clock() const {
    return event_ ? Clock::kEvents : Clock::kHostFunctions;
  }

 private:
  friend class StreamClock;

  int device_;
  tb_stream* stream_;
  tb_event* event_ = nullptr;
  std::shared_ptr<HostTimes> time_;
};

/// Reads marks of one device, all passed. Made when the device has little to do: it places the device's clock beside the
/// host's by an event on the default stream, waited for.
class StreamClock {
 public:
  explicit StreamClock(int device);

  /// now_ns() at which the mark was passed. Throws what the plugin reports.
  int64_t read(const Mark& mark);

 private:
  void place();

  int device_;
  std::unique_ptr<Mark> anchor_;
  int64_t anchor_ns_ = 0;
};

} // namespace torch_backend::profiler
