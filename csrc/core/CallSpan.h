// Calls into the plugin, for whoever observes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "torch_backend/device.h"

namespace torch_backend {

/// One call as its observer sees it; destroyed when the call has ended, however that was. By the thread that makes it.
class ObservedCall {
 public:
  virtual ~ObservedCall() = default;

  // Before the call, what it enqueues on `stream`; at most one of these.
  virtual void kernel(tb_stream* stream, const std::string& name) = 0;
  virtual void copy(tb_stream* stream, uint32_t kind, const void* dst, const void* src, uint64_t size_bytes) = 0;
  virtual void fill(tb_stream* stream, uint64_t size_bytes) = 0;
  virtual void host_function(tb_stream* stream) = 0;

  /// After the call, which went well: the work is on the stream.
  virtual void enqueued() = 0;
};

/// Begins to observe a call, which the span deletes, or does not (NULL). From any thread.
using CallObserver = ObservedCall* (*)(const char* slot, int device);

/// There is one observer or none (NULL), which is all that a call costs then. Calls that have begun are observed to their
/// end. Loaded with acquire: whoever sees the observer sees what was prepared for it.
extern std::atomic<CallObserver> call_observer;

/// The host's side of a call into the plugin, from construction to destruction, and the device's side if the call
/// enqueues work. A call that is left by an exception has enqueued none. Names have static storage.
class CallSpan {
 public:
  CallSpan(const char* slot, int device) {
    const CallObserver observe = call_observer.load(std::memory_order_acquire);
    if (__builtin_expect(observe != nullptr, 0)) {
      call_ = observe(slot, device);
    }
  }
  ~CallSpan() {
    if (is_observed()) {
      end();
    }
  }
  CallSpan(const CallSpan&) = delete;
  CallSpan& operator=(const CallSpan&) = delete;

  // As ObservedCall's. Without enqueued() only the host's side is observed.
  void kernel(tb_stream* stream, const std::string& name) {
    if (is_observed()) {
      call_->kernel(stream, name);
    }
  }
  void copy(tb_stream* stream, uint32_t kind, const void* dst, const void* src, uint64_t size_bytes) {
    if (is_observed()) {
      call_->copy(stream, kind, dst, src, size_bytes);
    }
  }
  void fill(tb_stream* stream, uint64_t size_bytes) {
    if (is_observed()) {
      call_->fill(stream, size_bytes);
    }
  }
  void host_function(tb_stream* stream) {
    if (is_observed()) {
      call_->host_function(stream);
    }
  }
  void enqueued() {
    if (is_observed()) {
      call_->enqueued();
    }
  }

 private:
  bool is_observed() const noexcept {
    return __builtin_expect(call_ != nullptr, 0);
  }
  void end() noexcept; // not inline: it would lie in the way of calls that are not observed

  ObservedCall* call_ = nullptr;
};

} // namespace torch_backend
