// The devices, and which of them a thread works on.
//
// Contexts are the primary ones, which torch.cuda and the CUDA runtime use too: addresses and streams are valid on
// both sides. A context takes hundreds of megabytes of a GPU, so each is made when its device is first used, and none
// is ever released: at process exit work may be pending.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cu.h"
#include "result.h"

namespace xcuda {

class host_lane;
struct stream_mark;

struct device {
  device(int32_t index, CUdevice handle) : index(index), handle(handle) {}

  const int32_t index;
  const CUdevice handle;
  std::atomic<CUcontext> context{nullptr};
  tb_device_properties properties{};
  size_t max_pitch_bytes = 0;
  CUmemoryPool pool = nullptr; // of stream_alloc

  std::mutex commit_mutex;                 // guards the next two
  std::map<CUdeviceptr, uint64_t> commits; // of memory_commit
  std::set<CUdevice> readers;              // other devices that may access them

  std::mutex mutex;   // guards all below
  uint64_t peers = 0; // a bit for each device whose memory this one's context can access
  std::shared_ptr<host_lane> default_lane;
  std::vector<tb_stream*> streams{nullptr};        // the default one, and those of stream_create
  std::vector<std::shared_ptr<stream_mark>> marks; // of leave_mark, not reached when last looked at
  std::vector<CUstream> aborted;                   // of note_abort, not told yet
};

// Pre: initialize has succeeded, and the index is below device_count.
device& device_at(int32_t index);

// Of all that initialize has found.
void for_each_device(void (*visit)(device& d));

// The device's context, made if this is the first use. Null, and *out_failure says why, if it cannot be.
CUcontext context_of(device& d, result* out_failure);

// A device's context is the thread's as long as this lives, and then again what was: torch.cuda takes the thread's
// context for its current device. Device 0's stays on a thread that had none, for which CUDA's runtime takes device 0
// anyway.
class context_scope {
 public:
  explicit context_scope(device& d);
  context_scope(const context_scope&) = delete;
  context_scope& operator=(const context_scope&) = delete;
  ~context_scope();

  // Why there is no context.
  const result& failure() const {
    return failure_;
  }

 private:
  bool pushed_ = false;
  result failure_;
};

// Calls `function` in the device's context; its CUresult as a result.
template <typename Function>
result call_on(device& d, const char* what, Function function) {
  const context_scope scope(d);
  return scope.failure().ok() ? check(function(), what) : scope.failure();
}

// Allocations and modules are no part of a capture that somebody has begun, in whatever mode.
class outside_captures {
 public:
  outside_captures() {
    cu.ThreadExchangeStreamCaptureMode(&mode_);
  }
  outside_captures(const outside_captures&) = delete;
  outside_captures& operator=(const outside_captures&) = delete;
  ~outside_captures() {
    cu.ThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  int mode_ = kCU_STREAM_CAPTURE_MODE_RELAXED;
};

// Lets `d` access the memory of `peer`, if it can; asked once for each pair.
result enable_peer(device& d, device& peer);

} // namespace xcuda
