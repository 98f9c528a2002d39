// Errors of work that failed after it was enqueued, for drivers that tell of each once, and not to who waits for it: kept by
// stream until a wait reports it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "result.h"

namespace plugin {

// Any thread.
class late_errors {
 public:
  // What a callback of the driver told of the stream, or a call that nobody hears of (memory_free, event_destroy,
  // stream_destroy) has met; `stream` is NULL if it is not known which. The first error of a stream stays, and no success.
  void keep(int32_t device, const void* stream, result r) {
    if (r.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (find(device, stream) == kept_.end()) kept_.push_back({device, stream, std::move(r)});
    any_ = true;
  }

  // What a wait for the stream, or a query, that found `waited` returns. An error that was kept for it, or for the device,
  // is told now and forgotten; of work that is not done nothing is. `stream` is NULL to wait for the whole device.
  result told(int32_t device, const void* stream, result waited) {
    if (!any_ || !waited.ok()) return waited;
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = find(device, stream);
    if (found == kept_.end()) found = find(device, nullptr);
    if (found == kept_.end() && !stream)
      found = std::find_if(kept_.begin(), kept_.end(), [=](const entry& each) { return each.device == device; });
    if (found == kept_.end()) return waited;
    result r = std::move(found->error);
    kept_.erase(found);
    any_ = !kept_.empty();
    return r;
  }

 private:
  struct entry {
    int32_t device;
    const void* stream;
    result error;
  };

  std::vector<entry>::iterator find(int32_t device, const void* stream) {
    return std::find_if(kept_.begin(), kept_.end(),
                        [=](const entry& each) { return each.device == device && each.stream == stream; });
  }

  std::atomic<bool> any_{false}; // what a wait reads without the lock
  std::mutex mutex_;             // guards kept_
  std::vector<entry> kept_;
};

} // namespace plugin
