#include "host_lane.h"

#include <atomic>

#include "device.h"
#include "mark.h"

namespace xcuda {

// Freed by the worker's thread when the stream has done all that is on it, which it does also if it is destroyed.
struct host_lane::word {
  device& of;
  std::atomic<uint32_t>* host = nullptr;
  CUdeviceptr address = 0;

  explicit word(device& d) : of(d) {}
  word(const word&) = delete;
  word& operator=(const word&) = delete;
  ~word() {
    const outside_captures outside;
    const context_scope scope(of);
    if (host) cu.MemFreeHost(host);
  }
};

result host_lane::make_word() {
  const outside_captures outside;
  auto made = std::make_shared<word>(device_);
  void* host = nullptr;
  result r = check(cu.MemHostAlloc(&host, sizeof *made->host, kCU_MEMHOSTALLOC_PORTABLE), "stream_host_function");
  if (!r.ok()) return r;
  made->host = new (host) std::atomic<uint32_t>(0);
  r = check(cu.MemHostGetDevicePointer(&made->address, host, 0), "stream_host_function");
  if (r.ok()) word_ = std::move(made);
  return r;
}

result host_lane::enqueue(CUstream on, tb_host_function fn, void* arg) {
  const std::lock_guard<std::mutex> lock(mutex_);
  result r = word_ ? result() : make_word();
  CUevent reached = nullptr;
  if (r.ok()) r = check(cu.EventCreate(&reached, kCU_EVENT_DISABLE_TIMING | kCU_EVENT_BLOCKING_SYNC), "cuEventCreate");
  if (!r.ok()) return r;
  r = check(cu.EventRecord(reached, on), "stream_host_function");
  if (r.ok())
    r = check(cu.StreamWaitValue32(on, word_->address, enqueued_ + 1, kCU_STREAM_WAIT_VALUE_GEQ),
              "stream_host_function");
  if (!r.ok()) {
    cu.EventDestroy(reached);
    return r;
  }
  const uint32_t number = ++enqueued_;
  worker_.push([to = word_, reached, fn, arg, number] {
    {
      const context_scope scope(to->of);
      cu.EventSynchronize(reached);
      cu.EventDestroy(reached);
    }
    fn(arg);
    to->host->store(number, std::memory_order_release);
  });
  return r;
}

void host_lane::outlast(std::shared_ptr<stream_mark> mark) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!word_) return;
  worker_.push([to = word_, mark = std::move(mark)] {
    const context_scope scope(to->of);
    mark->wait();
  });
}

host_lane& default_lane_of(device& d) {
  const std::lock_guard<std::mutex> lock(d.mutex);
  if (!d.default_lane) d.default_lane = std::make_shared<host_lane>(d);
  return *d.default_lane;
}

} // namespace xcuda
