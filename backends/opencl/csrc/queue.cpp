#include "queue.h"

namespace ocl {
namespace {

// Drivers may keep commands to themselves until they are told to begin, and events until they are looked at.
constexpr uint64_t kFlushEvery = 8, kLookEvery = 64;

cl_int status_of(cl_event event) {
  cl_int status = CL_QUEUED;
  const cl_int error = cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return error == CL_SUCCESS ? status : error;
}

} // namespace

cl_int event_reference::status() const {
  return status_of(event_);
}

result queue::create(device& d, std::shared_ptr<queue>* out_queue) {
  std::shared_ptr<queue> q(new queue(d));
  cl_int error = CL_SUCCESS;
  q->handle_ = cl.CreateCommandQueue(d.context, d.found.id, CL_QUEUE_PROFILING_ENABLE, &error);
  if (error != CL_SUCCESS) return check(error, "clCreateCommandQueue");
  *out_queue = std::move(q);
  return {};
}

// The driver completes what is enqueued.
queue::~queue() {
  for (const command& c : pending_) cl.ReleaseEvent(c.event);
  if (handle_) cl.ReleaseCommandQueue(handle_);
}

result queue::keep(const char* what, cl_event event) {
  pending_.push_back({what, event});
  const uint64_t number = num_completed_ + pending_.size();
  if (number % kFlushEvery == 0) cl.Flush(handle_);
  if (number % kLookEvery == 0) forget_completed();
  return {};
}

void queue::forget_completed() {
  while (!pending_.empty()) {
    const command& c = pending_.front();
    const cl_int status = status_of(c.event);
    if (status > CL_COMPLETE) return;
    ++num_completed_;
    if (status < 0 && failed_number_ == 0) {
      failed_number_ = num_completed_;
      failed_ = check(status, c.what);
      if (failed_.status != TB_STATUS_DEVICE_LOST) failed_.status = TB_STATUS_INTERNAL;
      failed_.text += ", when it ran";
    }
    cl.ReleaseEvent(c.event);
    pending_.pop_front();
  }
}

result queue::take_failure_locked(uint64_t number) {
  forget_completed();
  if (failed_number_ == 0 || failed_number_ > number) return {};
  failed_number_ = 0;
  return std::move(failed_);
}

result queue::take_failure(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return take_failure_locked(number);
}

result queue::mark(cl_event* out_marker, uint64_t* out_number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  cl_event marker = nullptr;
  result r = check(cl.EnqueueMarkerWithWaitList(handle_, 0, nullptr, &marker), "clEnqueueMarkerWithWaitList");
  if (!r.ok()) return r;
  cl.Flush(handle_);
  cl.RetainEvent(marker); // one reference is the caller's
  r = keep("event_record", marker);
  *out_marker = marker;
  *out_number = num_completed_ + pending_.size();
  return r;
}

result queue::wait_for(const char* what, cl_event event) {
  return enqueue(what,
                 [&](cl_command_queue q, cl_event* out) { return cl.EnqueueBarrierWithWaitList(q, 1, &event, out); });
}

result queue::host_step(const char* what, std::function<void()> step) {
  cl_int error = CL_SUCCESS;
  const cl_event done = cl.CreateUserEvent(device_.context, &error);
  if (error != CL_SUCCESS) return check(error, "clCreateUserEvent");
  const std::lock_guard<std::mutex> lock(mutex_);
  cl_event before = nullptr, after = nullptr;
  error = cl.EnqueueMarkerWithWaitList(handle_, 0, nullptr, &before);
  if (error == CL_SUCCESS) error = cl.EnqueueBarrierWithWaitList(handle_, 1, &done, &after);
  if (error != CL_SUCCESS) {
    if (before) cl.ReleaseEvent(before);
    cl.ReleaseEvent(done);
    return check(error, what);
  }
  cl.Flush(handle_);
  result r = keep(what, after);
  const auto go_on = [before, done] {
    cl.SetUserEventStatus(done, CL_COMPLETE);
    cl.ReleaseEvent(before);
    cl.ReleaseEvent(done);
  };
  try {
    worker_.push([self = shared_from_this(), before, go_on, step = std::move(step)] {
      cl.WaitForEvents(1, &before); // fails with the command before it, which is reported elsewhere
      step();
      go_on();
    });
  } catch (...) {
    go_on();
    throw;
  }
  return r;
}

result queue::synchronize() {
  cl_event last = nullptr;
  uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    number = num_completed_ + pending_.size();
    if (!pending_.empty()) {
      last = pending_.back().event;
      cl.RetainEvent(last);
      cl.Flush(handle_);
    }
  }
  if (last) {
    cl.WaitForEvents(1, &last); // its error is the event's
    cl.ReleaseEvent(last);
  }
  return take_failure(number);
}

result queue::query() {
  const std::lock_guard<std::mutex> lock(mutex_);
  forget_completed();
  if (pending_.empty()) return take_failure_locked(num_completed_);
  cl.Flush(handle_);
  return {TB_STATUS_NOT_READY, ""};
}

} // namespace ocl
