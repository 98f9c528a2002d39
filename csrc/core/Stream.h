// Streams of the active device: default, pooled per priority, external; the current one per thread and device.
#pragma once

#include <functional>
#include <vector>

#include <c10/core/Stream.h>

#include "torch_backend/device.h"

namespace torch_backend {

/// A c10::Stream of the active device with its plugin handle. A value; owns nothing. Pool streams live until the
/// process ends. On a synchronous device every stream has the handle NULL: all work is inline, on one implicit stream.
class Stream {
 public:
  /// Throws unless `stream` belongs to the active device type.
  explicit Stream(c10::Stream stream);

  c10::Stream unwrap() const {
    return stream_;
  }
  operator c10::Stream() const {
    return stream_;
  }
  c10::DeviceIndex device_index() const {
    return stream_.device_index();
  }
  c10::Device device() const {
    return stream_.device();
  }
  c10::StreamId id() const {
    return stream_.id();
  }
  /// The plugin's handle; created on first use for pool streams.
  tb_stream* handle() const;
  /// As in CUDA: lower numbers are served first; 0 for the default and external streams.
  int priority() const;

  bool query() const;
  void synchronize() const;

  bool operator==(const Stream& other) const {
    return stream_ == other.stream_;
  }
  bool operator!=(const Stream& other) const {
    return !(*this == other);
  }

 private:
  c10::Stream stream_;
};

/// `device` -1 is the calling thread's current device.
Stream default_stream(c10::DeviceIndex device = -1);
Stream current_stream(c10::DeviceIndex device = -1);
/// Round robin over kStreamsPerPriority streams; `priority` is clamped to what the device offers.
Stream stream_from_pool(int priority = 0, c10::DeviceIndex device = -1);
/// A stream of its own, which lives until the process ends. Only on asynchronous devices.
Stream lasting_stream(int priority, c10::DeviceIndex device);
/// A stream made by the vendor's own API, whose owner keeps it alive while it is current or has a name here; see Note
/// [External streams]. Handles must be even numbers (they are pointers).
Stream external_stream(tb_stream* handle, c10::DeviceIndex device);
/// Makes `stream` current on its device for the calling thread. Does not change the current device.
void set_current_stream(Stream stream);
/// Every stream of the device that has a handle, the default stream first; of external ones those that are current.
std::vector<Stream> all_streams(c10::DeviceIndex device);
/// Lowest (least urgent) and highest priority number of the device.
std::pair<int, int> stream_priority_range(c10::DeviceIndex device = -1);

constexpr int kStreamsPerPriority = 32;

} // namespace torch_backend

template <>
struct std::hash<torch_backend::Stream> {
  std::size_t operator()(const torch_backend::Stream& stream) const noexcept {
    return std::hash<c10::Stream>{}(stream.unwrap());
  }
};
