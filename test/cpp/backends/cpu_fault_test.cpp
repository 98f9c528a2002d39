// Failures on demand of the xcpu device.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/xcpu_test.h"

namespace torch_backend::testing {
namespace {

class XcpuFaultTest : public XcpuTest {
 protected:
  tb_status allocation(int32_t device = 0) {
    void* ptr = nullptr;
    const tb_status status = core->memory_allocate(device, TB_MEMORY_DEVICE, 64, nullptr, &ptr);
    EXPECT_EQ(ptr != nullptr, status == TB_STATUS_OK);
    return status;
  }
  tb_status fill(void* ptr, tb_stream* stream = nullptr) {
    return core->memory_fill(0, ptr, "z", 1, 64, stream);
  }
};

TEST_F(XcpuFaultTest, EveryStatusCanBeAskedFor) {
  load({{"fault", ""}});
  const std::vector<std::pair<std::string, tb_status>> statuses = {
      {"NOT_READY", TB_STATUS_NOT_READY},
      {"UNSUPPORTED", TB_STATUS_UNSUPPORTED},
      {"OUT_OF_MEMORY", TB_STATUS_OUT_OF_MEMORY},
      {"INVALID_ARGUMENT", TB_STATUS_INVALID_ARGUMENT},
      {"DEVICE_LOST", TB_STATUS_DEVICE_LOST},
      {"INTERNAL", TB_STATUS_INTERNAL},
      {"TIMEOUT", TB_STATUS_TIMEOUT},
  };
  for (const auto& [name, status] : statuses) {
    set_option("xcpu.fault", "memory_allocate=" + name);
    EXPECT_EQ(allocation(), status) << name;
    const std::string text = take_failure_text();
    EXPECT_NE(text.find("memory_allocate"), std::string::npos) << text;
    EXPECT_NE(text.find(name), std::string::npos) << text;
  }
}

TEST_F(XcpuFaultTest, OnlyTheNamedSlotFails) {
  load({{"fault", "memory_info=INTERNAL"}});
  uint64_t free = 0, total = 0;
  EXPECT_OK(allocation());
  EXPECT_STATUS(TB_STATUS_INTERNAL, core->memory_info(0, &free, &total));
  EXPECT_EQ(total, 0u);
}

TEST_F(XcpuFaultTest, OnlyTheNthCallFails) {
  load({{"fault", "memory_allocate=OUT_OF_MEMORY@3"}});
  EXPECT_OK(allocation());
  EXPECT_OK(allocation());
  EXPECT_STATUS(TB_STATUS_OUT_OF_MEMORY, allocation());
  EXPECT_OK(allocation());
}

TEST_F(XcpuFaultTest, OnlyTheNamedDeviceFails) {
  load({{"fault", "memory_allocate:1=OUT_OF_MEMORY@2"}});
  EXPECT_OK(allocation(1));
  EXPECT_OK(allocation(0));
  EXPECT_OK(allocation(0));
  EXPECT_STATUS(TB_STATUS_OUT_OF_MEMORY, allocation(1));
  EXPECT_OK(allocation(1));
}

TEST_F(XcpuFaultTest, RulesOfAListCountOnTheirOwn) {
  load({{"fault", "memory_allocate=INTERNAL@1,memory_allocate=TIMEOUT@2,device_count=DEVICE_LOST"}});
  int32_t count = 0;
  EXPECT_STATUS(TB_STATUS_INTERNAL, allocation());
  EXPECT_STATUS(TB_STATUS_TIMEOUT, allocation());
  EXPECT_OK(allocation());
  EXPECT_STATUS(TB_STATUS_DEVICE_LOST, core->device_count(&count));
}

TEST_F(XcpuFaultTest, TheFirstOfSeveralRulesDecides) {
  load({{"fault", "memory_allocate=TIMEOUT@2,memory_allocate=INTERNAL"}});
  EXPECT_STATUS(TB_STATUS_INTERNAL, allocation());
  EXPECT_STATUS(TB_STATUS_TIMEOUT, allocation());
  EXPECT_STATUS(TB_STATUS_INTERNAL, allocation());
}

TEST_F(XcpuFaultTest, AFailedCallHasDoneNothing) {
  load({{"fault", ""}});
  unsigned char* ptr = allocate(0, 64);
  upload(0, ptr, bytes(64, 1));
  const uint64_t before = free_bytes(0);
  set_option("xcpu.fault", "memory_free=INTERNAL,memory_fill=INTERNAL,memory_allocate=INTERNAL");
  EXPECT_STATUS(TB_STATUS_INTERNAL, core->memory_free(0, TB_MEMORY_DEVICE, ptr, 64, nullptr));
  EXPECT_STATUS(TB_STATUS_INTERNAL, fill(ptr));
  EXPECT_STATUS(TB_STATUS_INTERNAL, allocation());
  EXPECT_EQ(free_bytes(0), before);
  EXPECT_EQ(download(0, ptr, 64), bytes(64, 1));
  set_option("xcpu.fault", "");
  release(0, ptr, 64);
}

TEST_F(XcpuFaultTest, AChangedOptionCountsAnew) {
  load({{"fault", "memory_allocate=INTERNAL@2"}});
  EXPECT_OK(allocation());
  set_option("xcpu.fault", "");
  EXPECT_OK(allocation());
  set_option("xcpu.fault", "memory_allocate=INTERNAL@2");
  EXPECT_OK(allocation());
  EXPECT_STATUS(TB_STATUS_INTERNAL, allocation());
}

TEST_F(XcpuFaultTest, UnsetAtLoadMeansNeverRead) {
  load({});
  set_option("xcpu.fault", "memory_allocate=INTERNAL");
  EXPECT_OK(allocation());
}

TEST_F(XcpuFaultTest, RulesThatMakeNoSenseAreRefused) {
  for (const char* bad : {"memory_allocate", "memory_alloc=INTERNAL", "memory_allocate=BAD", "memory_allocate=OK",
                          "memory_allocate=INTERNAL@0", "memory_allocate=INTERNAL@", "memory_allocate=INTERNAL@x",
                          "memory_allocate:=INTERNAL", "memory_allocate:-1=INTERNAL", "memory_info=INTERNAL,,"}) {
    set_options({{"xcpu.fault", bad}});
    EXPECT_EQ(load_plugin(TB_XCPU_PLUGIN), nullptr) << bad;
    const std::string text = take_failure_text();
    EXPECT_NE(text.find("xcpu.fault"), std::string::npos) << text;
    EXPECT_NE(text.find("slot[:device]=STATUS[@n]"), std::string::npos) << text;
  }
}

TEST_F(XcpuFaultTest, AtRunTimeTheyFailEveryCall) {
  load({{"fault", ""}});
  set_option("xcpu.fault", "nonsense");
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, allocation());
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, allocation());
  EXPECT_NE(take_failure_text().find("nonsense"), std::string::npos);
  set_option("xcpu.fault", "");
  EXPECT_OK(allocation());
}

TEST_F(XcpuFaultTest, AsynchronousFailuresAreReportedOnceByTheStream) {
  load({{"async", "1"}, {"fault", ""}});
  unsigned char* ptr = allocate(0, 64);
  upload(0, ptr, bytes(64, 1));
  set_option("xcpu.fault", "memory_fill=INTERNAL@1");
  EXPECT_OK(fill(ptr));
  EXPECT_STATUS(TB_STATUS_INTERNAL, core->stream_synchronize(0, nullptr));
  EXPECT_NE(take_failure_text().find("memory_fill"), std::string::npos);
  EXPECT_EQ(download(0, ptr, 64), bytes(64, 1));
  EXPECT_OK(fill(ptr));
  EXPECT_EQ(download(0, ptr, 64), bytes(64, 'z'));
}

TEST_F(XcpuFaultTest, AsynchronousFailuresAreReportedByQueries) {
  load({{"async", "1"}, {"fault", "memory_fill=DEVICE_LOST@1"}});
  unsigned char* ptr = allocate(0, 64);
  gate g;
  g.enqueue(core, 0, nullptr);
  EXPECT_OK(fill(ptr));
  EXPECT_STATUS(TB_STATUS_NOT_READY, core->stream_query(0, nullptr));
  g.open();
  tb_status status = TB_STATUS_NOT_READY;
  while (status == TB_STATUS_NOT_READY) status = core->stream_query(0, nullptr);
  EXPECT_EQ(status, TB_STATUS_DEVICE_LOST);
  EXPECT_OK(core->stream_query(0, nullptr));
}

TEST_F(XcpuFaultTest, CopiesOfALostDeviceTouchNoHostMemory) {
  load({{"async", "1"}, {"fault", ""}});
  unsigned char* ptr = allocate(0, 64);
  upload(0, ptr, bytes(64, 'x'));
  bytes host(64, 'h');
  gate g;
  g.enqueue(core, 0, nullptr);
  EXPECT_OK(core->memory_copy(-1, host.data(), 0, ptr, 64, TB_COPY_DEVICE_TO_HOST, nullptr));
  set_option("xcpu.fault", "stream_query=DEVICE_LOST@1");
  EXPECT_STATUS(TB_STATUS_DEVICE_LOST, core->stream_query(0, nullptr));
  g.open();
  EXPECT_STATUS(TB_STATUS_DEVICE_LOST, core->stream_synchronize(0, nullptr));
  EXPECT_EQ(host, bytes(64, 'h'));
}

TEST_F(XcpuFaultTest, AsynchronousFailuresAreReportedByLaterEventsAndDeviceSynchronize) {
  load({{"async", "1"}, {"fault", ""}});
  unsigned char* ptr = allocate(0, 64);
  tb_event *before = create_event(0), *after = create_event(0);
  set_option("xcpu.fault", "memory_fill=TIMEOUT");
  EXPECT_OK(core->event_record(0, before, nullptr));
  EXPECT_OK(fill(ptr));
  EXPECT_OK(core->event_record(0, after, nullptr));
  EXPECT_OK(core->event_synchronize(0, before));
  EXPECT_STATUS(TB_STATUS_TIMEOUT, core->event_synchronize(0, after));
  EXPECT_OK(core->stream_synchronize(0, nullptr));
  EXPECT_OK(fill(ptr, create_stream(0)));
  EXPECT_STATUS(TB_STATUS_TIMEOUT, core->device_synchronize(0));
  EXPECT_OK(core->device_synchronize(0));
}

TEST_F(XcpuFaultTest, UnsupportedIsReturnedAtOnceAlsoByAsynchronousCalls) {
  load({{"async", "1"}, {"fault", "memory_fill=UNSUPPORTED"}});
  unsigned char* ptr = allocate(0, 64);
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, fill(ptr));
  EXPECT_OK(core->stream_synchronize(0, nullptr));
}

TEST_F(XcpuFaultTest, StreamsAndEventsFailToo) {
  load({{"async", "1"}, {"fault", "stream_create=OUT_OF_MEMORY,event_record=INTERNAL,event_query=NOT_READY@1"}});
  tb_stream* stream = nullptr;
  tb_event* event = create_event(0);
  EXPECT_STATUS(TB_STATUS_OUT_OF_MEMORY, core->stream_create(0, 0, &stream));
  EXPECT_STATUS(TB_STATUS_INTERNAL, core->event_record(0, event, nullptr));
  EXPECT_STATUS(TB_STATUS_NOT_READY, core->event_query(0, event));
  EXPECT_OK(core->event_query(0, event));
}

} // namespace
} // namespace torch_backend::testing
