// The host functions of one stream: a thread that may block, which cuLaunchHostFunc's may not, and which calls them
// also if the stream has failed, which the driver does not.
//
// The stream records an event and then waits for a word of page-locked memory; the thread waits for the event, calls
// the function, and sets the word. cuda.h wants an order that such a word makes to be one that CUDA sees as well: what
// the function comes after and what comes after it are on the one stream. But streams may share a queue of the hardware,
// so a function that waits for what is enqueued on another stream later than itself may wait for ever.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "common/worker.h"
#include "cu.h"
#include "result.h"

namespace xcuda {

struct device;
struct stream_mark;

class host_lane {
 public:
  explicit host_lane(device& d) : device_(d) {}
  host_lane(const host_lane&) = delete;
  host_lane& operator=(const host_lane&) = delete;

  // Pre: the device's context is the thread's.
  result enqueue(CUstream on, tb_host_function fn, void* arg);

  // The word stays until the mark is reached, which is the end of a stream that is about to be destroyed.
  void outlast(std::shared_ptr<stream_mark> mark);

 private:
  struct word;
  result make_word();

  device& device_;
  std::mutex mutex_; // guards what follows, and the order of what is enqueued
  std::shared_ptr<word> word_;
  uint32_t enqueued_ = 0;
  worker worker_;
};

// Of the default stream.
host_lane& default_lane_of(device& d);

} // namespace xcuda
