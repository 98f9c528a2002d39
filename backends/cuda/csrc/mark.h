// A point of a stream, which one can wait for when the stream is gone or captured: an event of its own.
#pragma once

#include "device.h"

namespace xcuda {

struct stream_mark {
  explicit stream_mark(device& d) : of_(d) {}
  stream_mark(const stream_mark&) = delete;
  stream_mark& operator=(const stream_mark&) = delete;
  ~stream_mark() {
    const context_scope scope(of_);
    if (event_) cu.EventDestroy(event_);
  }

  // Once. Pre: the device's context is the thread's.
  result record(CUstream stream) {
    result r = check(cu.EventCreate(&event_, kCU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return r.ok() ? check(cu.EventRecord(event_, stream), "cuEventRecord") : r;
  }
  // Likewise.
  bool is_reached() const {
    return cu.EventQuery(event_) != kCUDA_ERROR_NOT_READY;
  }
  CUresult wait() const {
    return cu.EventSynchronize(event_);
  }

 private:
  device& of_;
  CUevent event_ = nullptr;
};

} // namespace xcuda
