// A capture in progress: which streams take part, and what the graph will need.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/core/Stream.h"
#include "torch_backend/device.h"

namespace torch_backend::graph {

/// Note [Captures]
/// The plugin records what is enqueued on a capturing stream, and replays it (graph.1; Tape.h where it does not). The core
/// knows which streams take part: their memory comes from the graph's private pool and stays where it is, and what a graph
/// cannot hold is refused by its name. It keeps alive what recorded host functions use, and calls them back before each
/// launch.

/// What a host function that was recorded uses. Lives as long as the graph; everything else is the user's to keep alive.
class Recorded {
 public:
  Recorded() = default;
  virtual ~Recorded() = default;
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  /// A launch on `stream` comes next; those of one graph run one after the other, in the order of these calls.
  virtual void begin_launch(const Stream& stream) = 0;
  /// It has failed: the last begin_launch was for nothing.
  virtual void cancel_launch() noexcept = 0;
};

/// Threads: any; a stream's owner is expected to capture from one thread at a time, with autograd's beside it.
class Capture {
 public:
  explicit Capture(const Stream& stream);

  uint64_t id() const {
    return id_;
  }
  const Stream& origin() const {
    return origin_;
  }

  bool includes(c10::DeviceIndex device, c10::StreamId stream) const;
  bool includes(c10::DeviceIndex device, tb_stream* handle) const;
  void join(const Stream& stream);

  /// For Graph::debug_dump.
  void add_step(std::string name);
  void keep(std::shared_ptr<Recorded> recorded);

  /// The capture has failed; the first reason stays.
  void invalidate(std::string reason);
  /// Empty while it is valid.
  std::string failure() const;

  std::vector<std::string> take_steps();
  std::vector<std::shared_ptr<Recorded>> take_recorded();

 private:
  const uint64_t id_;
  const Stream origin_;
  mutable std::mutex mutex_; // guards what follows
  std::vector<std::pair<c10::StreamId, tb_stream*>> streams_;
  std::vector<std::string> steps_;
  std::vector<std::shared_ptr<Recorded>> recorded_;
  std::string failure_;
};

namespace detail {
extern std::atomic<int> num_captures;
std::shared_ptr<Capture> find(int device, tb_stream* handle);
std::shared_ptr<Capture> find(const Stream& stream);
[[noreturn]] void refuse(Capture& capture, const std::string& what);
} // namespace detail

/// Whether any stream captures: all that most calls have to know.
inline bool any_capture() noexcept {
  return __builtin_expect(detail::num_captures.load(std::memory_order_relaxed) != 0, 0);
}

/// The capture that the stream takes part in, or NULL.
inline std::shared_ptr<Capture> capture_of(const Stream& stream) {
  return any_capture() ? detail::find(stream) : nullptr;
}
inline bool is_capturing(const Stream& stream) {
  return capture_of(stream) != nullptr;
}

/// Names what the plugin has recorded on the stream with this handle, if it captures.
inline void add_step(int device, tb_stream* handle, const char* name) {
  if (any_capture()) {
    if (const auto capture = detail::find(device, handle)) {
      capture->add_step(name);
    }
  }
}

/// Throws, and fails the capture, if the stream takes part in one: `what` names what a graph cannot hold.
inline void refuse_in_capture(const Stream& stream, const char* what) {
  if (any_capture()) {
    if (const auto capture = detail::find(stream)) {
      detail::refuse(*capture, what);
    }
  }
}
inline void refuse_in_capture(int device, tb_stream* handle, const char* what) {
  if (any_capture()) {
    if (const auto capture = detail::find(device, handle)) {
      detail::refuse(*capture, what);
    }
  }
}

/// The capture with this id while it goes on.
std::shared_ptr<Capture> find_capture(uint64_t id);

void begin(const std::shared_ptr<Capture>& capture);
void end(const Capture& capture) noexcept;

} // namespace torch_backend::graph
