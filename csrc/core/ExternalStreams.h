// Streams of the vendor's own API, as long as the core has to know them.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "csrc/core/Event.h"
#include "csrc/core/Stream.h"

namespace torch_backend {

/// The external streams of one device that a wait for the device includes.
///
/// Note [External streams]
/// Their owner keeps one alive while it is some thread's current stream, and may destroy it afterwards, also with work
/// pending. So a wait for the device asks the stream itself only while it is current; when a thread leaves it, an event
/// is recorded there, and waited for in its place. A thread that ends without leaving its stream keeps it current.
///
/// Threads: any.
class ExternalStreams {
 public:
  /// `stream` has become the calling thread's current stream, or is not any more.
  void enter(const Stream& stream);
  void leave(const Stream& stream) noexcept;

  /// Those that are current in some thread.
  std::vector<Stream> current();
  /// Waits for what was enqueued on the others, and forgets them.
  void synchronize_left();
  /// The device was waited for.
  void forget_left();

 private:
  struct Known {
    Stream stream;
    int num_threads;
    Event left{/*enable_timing=*/false}; // recorded when num_threads becomes 0
  };
  std::optional<Known> take_left();
  void forget_complete() noexcept;

  std::mutex mutex_; // guards known_, and is held around slots
  std::vector<Known> known_;
};

ExternalStreams& external_streams(c10::DeviceIndex device);

} // namespace torch_backend
