// A queue of the ocl device on functions of OpenCL that we write: what it says of commands that fail when they run, which
// no driver does when asked to.
#include "queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

namespace ocl {
namespace {

struct fake_event {
  std::atomic<cl_int> status{CL_QUEUED};
  std::atomic<int> references{1};
};

// Never moved: an event's address is its handle.
std::deque<fake_event>& events() {
  static std::deque<fake_event> all;
  return all;
}

cl_event make_event() {
  return reinterpret_cast<cl_event>(&events().emplace_back());
}
fake_event& fake(cl_event event) {
  return *reinterpret_cast<fake_event*>(event);
}

class OclQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    events().clear();
    cl.CreateCommandQueue = [](cl_context, cl_device_id, cl_command_queue_properties, cl_int* error) {
      *error = CL_SUCCESS;
      return reinterpret_cast<cl_command_queue>(1);
    };
    cl.ReleaseCommandQueue = [](cl_command_queue) -> cl_int { return CL_SUCCESS; };
    cl.Flush = [](cl_command_queue) -> cl_int { return CL_SUCCESS; };
    cl.RetainEvent = [](cl_event e) -> cl_int { return ++fake(e).references, CL_SUCCESS; };
    cl.ReleaseEvent = [](cl_event e) -> cl_int { return --fake(e).references, CL_SUCCESS; };
    cl.GetEventInfo = [](cl_event e, cl_event_info, size_t, void* value, size_t*) -> cl_int {
      *static_cast<cl_int*>(value) = fake(e).status;
      return CL_SUCCESS;
    };
    cl.WaitForEvents = [](cl_uint, const cl_event* e) -> cl_int {
      while (fake(*e).status > CL_COMPLETE) std::this_thread::yield();
      return fake(*e).status < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS;
    };
    cl.EnqueueMarkerWithWaitList = [](cl_command_queue, cl_uint, const cl_event*, cl_event* out) -> cl_int {
      *out = make_event();
      return CL_SUCCESS;
    };
    cl.EnqueueBarrierWithWaitList = cl.EnqueueMarkerWithWaitList;
    cl.CreateUserEvent = [](cl_context, cl_int* error) {
      *error = CL_SUCCESS;
      return make_event();
    };
    cl.SetUserEventStatus = [](cl_event e, cl_int status) -> cl_int { return fake(e).status = status, CL_SUCCESS; };
    ASSERT_TRUE(queue::create(device_, &queue_).ok());
  }

  fake_event& enqueue(const char* what) {
    cl_event made = nullptr;
    EXPECT_TRUE(queue_
                    ->enqueue(what,
                              [&](cl_command_queue, cl_event* event) {
                                made = *event = make_event();
                                return CL_SUCCESS;
                              })
                    .ok());
    return fake(made);
  }

  device device_{0, {}};
  std::shared_ptr<queue> queue_;
};

TEST_F(OclQueueTest, SaysOnceWhatFailed) {
  enqueue("first").status = CL_COMPLETE;
  enqueue("second").status = CL_OUT_OF_RESOURCES;
  enqueue("third").status = CL_COMPLETE;
  const result r = queue_->synchronize();
  EXPECT_EQ(r.status, TB_STATUS_INTERNAL);
  EXPECT_EQ(r.text, "second: CL_OUT_OF_RESOURCES (-5), when it ran");
  EXPECT_TRUE(queue_->synchronize().ok());
  EXPECT_TRUE(queue_->query().ok());
}

TEST_F(OclQueueTest, AQuerySaysItToo) {
  fake_event& command = enqueue("command");
  EXPECT_EQ(queue_->query().status, TB_STATUS_NOT_READY);
  command.status = CL_DEVICE_NOT_AVAILABLE;
  EXPECT_EQ(queue_->query().status, TB_STATUS_DEVICE_LOST);
  EXPECT_TRUE(queue_->query().ok());
}

TEST_F(OclQueueTest, WhatFailsAfterARecordIsNotTheRecords) {
  enqueue("before").status = CL_COMPLETE;
  cl_event marker = nullptr;
  uint64_t number = 0;
  ASSERT_TRUE(queue_->mark(&marker, &number).ok());
  fake(marker).status = CL_COMPLETE;
  enqueue("after").status = CL_OUT_OF_RESOURCES;
  EXPECT_TRUE(queue_->take_failure(number).ok());
  EXPECT_EQ(queue_->synchronize().text, "after: CL_OUT_OF_RESOURCES (-5), when it ran");
  cl.ReleaseEvent(marker);
}

TEST_F(OclQueueTest, AHostStepRunsThoughWhatIsBeforeItFailed) {
  enqueue("before").status = CL_OUT_OF_RESOURCES;
  std::atomic<int> calls{0};
  ASSERT_TRUE(queue_->host_step("step", [&] { ++calls; }).ok());
  for (fake_event& event : events()) // the marker before the step, and what waits for it
    if (event.status == CL_QUEUED) event.status = CL_COMPLETE;
  while (calls == 0) std::this_thread::yield();
  EXPECT_EQ(queue_->synchronize().status, TB_STATUS_INTERNAL);
  EXPECT_EQ(calls, 1);
}

TEST_F(OclQueueTest, GivesItsEventsBack) {
  for (int i = 0; i < 1000; ++i) enqueue("command").status = CL_COMPLETE;
  int pending = 0;
  for (const fake_event& event : events()) pending += event.references;
  EXPECT_LT(pending, 100) << "completed commands are forgotten only when somebody waits";
  EXPECT_TRUE(queue_->synchronize().ok());
  queue_.reset();
  for (const fake_event& event : events()) EXPECT_EQ(event.references, 0);
}

} // namespace
} // namespace ocl
