// One in-order command queue, and what of it is not complete.
//
// Every command leaves an event here, because a driver may say of a failed command only there: clFinish can succeed. They
// are looked at, oldest first, by whoever waits, and once in a while by whoever enqueues.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "cl.h"
#include "common/worker.h"
#include "device.h"
#include "result.h"

namespace ocl {

class queue : public std::enable_shared_from_this<queue> {
 public:
  static result create(device& d, std::shared_ptr<queue>* out_queue);
  ~queue();

  // Enqueues `enqueue_command(cl_command_queue, cl_event*)`, which returns OpenCL's error. `what` lives forever.
  template <typename Command>
  result enqueue(const char* what, Command&& enqueue_command) {
    const std::lock_guard<std::mutex> lock(mutex_);
    cl_event event = nullptr;
    const cl_int error = enqueue_command(handle_, &event);
    return error == CL_SUCCESS ? keep(what, event) : check(error, what);
  }

  // A marker, which the caller owns, and the number of commands with it, for take_failure.
  result mark(cl_event* out_marker, uint64_t* out_number);

  // What follows waits for `event`, of this context.
  result wait_for(const char* what, cl_event event);

  // `step` runs on a thread of ours after what is enqueued, and what follows waits for it.
  result host_step(const char* what, std::function<void()> step);

  // Of the commands up to `number`: the first failure that nobody was told of. They are complete.
  result take_failure(uint64_t number);

  result synchronize();
  result query();

  device& owner() {
    return device_;
  }

 private:
  struct command {
    const char* what;
    cl_event event; // owned
  };

  explicit queue(device& d) : device_(d) {}
  result keep(const char* what, cl_event event);
  void forget_completed();
  result take_failure_locked(uint64_t number);

  device& device_;
  cl_command_queue handle_ = nullptr;
  worker worker_;
  std::mutex mutex_; // guards all below, and the order of commands
  std::deque<command> pending_;
  uint64_t num_completed_ = 0; // commands that are not in pending_ any more
  uint64_t failed_number_ = 0; // of the first failed command that nobody was told of; 0 = none
  result failed_;
};

// Owns one reference to an OpenCL event.
class event_reference {
 public:
  explicit event_reference(cl_event event) : event_(event) {}
  event_reference(const event_reference&) = delete;
  event_reference& operator=(const event_reference&) = delete;
  ~event_reference() {
    cl.ReleaseEvent(event_);
  }
  cl_event get() const {
    return event_;
  }
  // CL_COMPLETE, more if it is not, a negative error if it has failed.
  cl_int status() const;

 private:
  cl_event event_;
};

} // namespace ocl
