// What the device does and what the host asks of it, recorded while a profiler runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/core/CallSpan.h"
#include "torch_backend/device.h"

namespace torch_backend::profiler {

/// Whether calls into the plugin are observed: a recording runs, and is not paused.
inline bool recording() noexcept {
  return __builtin_expect(call_observer.load(std::memory_order_acquire) != nullptr, 0);
}

enum class WorkKind : uint8_t { kKernel, kCopy, kFill };

/// Note [Who measures device work]
/// kPlugin: the plugin traced it (prof.1), on the device's clock, converted by clock_pair.
/// kEvents: on an asynchronous device, events before and after it on its stream, timed by the device; what the device
///   takes to get from one to the next is in it.
/// kHostFunctions: the same on a device that does not time events: host functions that look at the clock.
/// kHost: the host ran it (CPU kernels, on a thread of the plugin or in place), or called a synchronous device and
///   looked at the clock before and after.
enum class Clock : uint8_t { kPlugin, kEvents, kHostFunctions, kHost };

/// Host times of work that runs later on another thread, which sets them; nanoseconds of now_ns(), 0 = not yet.
struct HostTimes {
  std::atomic<int64_t> start_ns{0};
  std::atomic<int64_t> end_ns{0};
};

/// CLOCK_MONOTONIC.
int64_t now_ns() noexcept;

/// Announces that the next call of stream_host_function by this thread enqueues the CPU kernel `name`, which sets the
/// result's times. NULL if nothing is recorded. Other host functions are no work of the device.
std::shared_ptr<HostTimes> expect_host_kernel(std::string_view name);

/// The CPU kernel `name` of a graph that this thread launches now sets the result's times. NULL if nothing is recorded.
std::shared_ptr<HostTimes> begin_recorded_kernel(std::string_view name, int device, tb_stream* stream);

/// A CPU kernel that this thread runs on the device's memory, from begin to end with the same `owner`. Kernels of one
/// thread nest. `on_device` false: it runs on copies, which is the host's own work. `name` may lack its "aten::". end()
/// without begin() does nothing.
void begin_host_kernel(const void* owner, const char* name, int device, tb_stream* stream, bool on_device);
void end_host_kernel(const void* owner) noexcept;
/// The kernel that began last did not run after all.
void forget_host_kernel() noexcept;

/// The same for a scope, on the default stream's row: of a synchronous device.
class HostKernelSpan {
 public:
  HostKernelSpan(const char* name, int device) : recorded_(recording()) {
    if (recorded_) {
      begin_host_kernel(this, name, device, nullptr, /*on_device=*/true);
    }
  }
  ~HostKernelSpan() {
    if (recorded_) {
      end_host_kernel(this);
    }
  }
  HostKernelSpan(const HostKernelSpan&) = delete;
  HostKernelSpan& operator=(const HostKernelSpan&) = delete;

 private:
  bool recorded_;
};

// ---- for profilers ----

struct RuntimeRecord {
  const char* name;
  int device;
  int64_t start_ns, end_ns;
  uint64_t id; // joins it with work
  uint64_t op; // the correlation id of the operator that made the call; 0 = none
  int32_t system_thread;
  int32_t thread;
};

struct WorkRecord {
  WorkKind kind;
  std::string name;
  int device;
  uint64_t stream; // the handle as a number
  uint64_t size_bytes;
  int64_t start_ns, end_ns;
  uint64_t id;
  uint64_t op;
  std::vector<uint64_t> ranges; // correlation ids of the user's ranges around the call, outermost first
  Clock clock;
};

/// Times are nanoseconds since 1970.
struct Recording {
  std::vector<RuntimeRecord> runtime;
  std::vector<RuntimeRecord> driver; // what the plugin traced of the host's side
  std::vector<WorkRecord> work;
  std::vector<std::string> errors; // what is missing, and why
};

struct RecordingOptions {
  uint64_t kinds; // mask of TB_TRACE_*
};

/// One recording at a time. start throws RuntimeError if one runs. stop waits for what was recorded.
void start(const RecordingOptions& options);
Recording stop();
/// Switch a running recording off and on again, without its end.
void pause(bool paused) noexcept;

/// The calling thread is inside the operator, or the user's range, with this correlation id.
void push_operator(uint64_t id);
void pop_operator() noexcept;
void push_range(uint64_t id);
void pop_range() noexcept;

} // namespace torch_backend::profiler
