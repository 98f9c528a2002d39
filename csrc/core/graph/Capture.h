// A capture in progress: which streams take part, and what was recorded.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/core/Stream.h"
#include "torch_backend/device.h"

namespace torch_backend::graph {

/// Note [Two ways to capture]
/// A plugin that offers graph.1 records what is enqueued on its streams itself; the core only keeps alive what the work
/// needs. For every other device the core records, in the order of the calls: while a stream captures, what would be
/// enqueued on it becomes a step, and a replay takes the steps again, on one stream. So streams that join a capture (by
/// waiting for an event of it) may lose their concurrency, never their order.
///
/// Steps hold addresses. What is allocated on a capturing stream comes from the graph's private pool and stays where it
/// is; everything else is the user's to keep alive.

/// Enqueues one step on the stream it is given.
using Step = std::function<void(const Stream&)>;

struct NamedStep {
  std::string name;
  Step run;
};

/// Threads: any; a stream's owner is expected to capture from one thread at a time, with autograd's beside it.
class Capture {
 public:
  Capture(const Stream& stream, bool native);

  uint64_t id() const {
    return id_;
  }
  c10::DeviceIndex device() const {
    return origin_.device_index();
  }
  const Stream& origin() const {
    return origin_;
  }
  bool native() const {
    return native_;
  }

  bool includes(c10::DeviceIndex device, c10::StreamId stream) const;
  bool includes_handle(int device, tb_stream* handle) const;
  void join(const Stream& stream);

  void add(std::string name, Step step);
  /// Lives as long as the graph.
  void keep(std::shared_ptr<void> value);

  /// The capture has failed; the first reason stays.
  void invalidate(std::string reason);
  /// Empty while it is valid.
  std::string failure() const;

  std::vector<NamedStep> take_steps();
  std::vector<std::shared_ptr<void>> take_kept();

 private:
  const uint64_t id_;
  const Stream origin_;
  const bool native_;
  mutable std::mutex mutex_; // guards what follows
  std::set<c10::StreamId> streams_;
  std::vector<NamedStep> steps_;
  std::vector<std::shared_ptr<void>> kept_;
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

/// The capture that records, in place of the plugin, what would be enqueued on the stream with this handle. On a
/// synchronous device all handles are NULL, and the calling thread's current stream counts.
inline std::shared_ptr<Capture> recorder_of(int device, tb_stream* handle) {
  if (!any_capture()) {
    return nullptr;
  }
  auto capture = detail::find(device, handle);
  return capture && !capture->native() ? capture : nullptr;
}

/// Throws, and fails the capture, if `stream` takes part in one: `what` names what a graph cannot hold.
inline void refuse_in_capture(const Stream& stream, const char* what) {
  if (any_capture()) {
    if (const auto capture = detail::find(stream)) {
      detail::refuse(*capture, what);
    }
  }
}

/// The capture with this id while it goes on.
std::shared_ptr<Capture> find_capture(uint64_t id);

void begin(const std::shared_ptr<Capture>& capture);
void end(const Capture& capture) noexcept;

/// While alive, the calling thread's work runs in place of being recorded. Not on a plugin that captures itself.
class Suspend {
 public:
  Suspend();
  ~Suspend();
  Suspend(const Suspend&) = delete;
  Suspend& operator=(const Suspend&) = delete;
};

} // namespace torch_backend::graph
