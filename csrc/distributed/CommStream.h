// Streams that only communicators use.
#pragma once

#include "csrc/core/Stream.h"

namespace torch_backend {

/// A stream of the device that nobody else has while this lives. PyTorch's pool hands its streams out in turn: two
/// communicators on one stream would wait for each other's peers, and a user's work for both.
///
/// On a synchronous device it is the default stream.
class CommStream {
 public:
  explicit CommStream(c10::DeviceIndex device);
  /// The stream is kept for the next one: device-wide waits may know of it.
  ~CommStream();
  CommStream(const CommStream&) = delete;
  CommStream& operator=(const CommStream&) = delete;

  const Stream& get() const {
    return stream_;
  }

 private:
  Stream stream_;
};

} // namespace torch_backend
