// Graphs of the asynchronous xcpu device: graph.1. What any device has to do is tested by the conformance kit.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "support/xcpu_test.h"

namespace torch_backend::testing {
namespace {

class XcpuGraphTest : public XcpuTest {
 protected:
  void load_async(option_map more = {}) {
    more["async"] = "1";
    load(more);
    graphs = static_cast<const tb_graph_table*>(plugin->table("graph.1"));
    ASSERT_NE(graphs, nullptr);
    stream = create_stream(0);
    other = create_stream(0);
  }

  void begin(uint32_t mode = TB_CAPTURE_GLOBAL) {
    EXPECT_OK(graphs->capture_begin(0, stream, mode));
  }
  tb_graph* end() {
    tb_graph* graph = nullptr;
    EXPECT_OK(graphs->capture_end(0, stream, &graph));
    EXPECT_OK(graphs->graph_instantiate(0, graph));
    return graph;
  }
  void expect_failed_capture() {
    tb_graph* graph = nullptr;
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, graphs->capture_end(0, stream, &graph));
    EXPECT_EQ(graph, nullptr);
  }
  // `waiting` waits for what is on `on` now.
  void order(tb_stream* waiting, tb_stream* on) {
    tb_event* event = create_event(0);
    EXPECT_OK(core->event_record(0, event, on));
    EXPECT_OK(core->stream_wait_event(0, waiting, event));
  }
  void add(tb_stream* on, std::atomic<int>& number) {
    const auto fn = [](void* arg) { ++*static_cast<std::atomic<int>*>(arg); };
    EXPECT_OK(core->stream_host_function(0, on, fn, &number));
  }

  const tb_graph_table* graphs = nullptr;
  tb_stream *stream = nullptr, *other = nullptr;
};

TEST_F(XcpuGraphTest, IsOfferedByAsynchronousDevicesOnly) {
  load({});
  EXPECT_EQ(plugin->table("graph.1"), nullptr);
}

TEST_F(XcpuGraphTest, CapturesRefuseWhatWouldWaitForThem) {
  load_async();
  tb_event* event = create_event(0);
  tb_graph* graph = (begin(), end());
  const std::vector<std::function<tb_status()>> calls = {
      [&] { return core->stream_synchronize(0, stream); }, [&] { return core->stream_query(0, stream); },
      [&] { return core->stream_destroy(0, stream); },     [&] { return core->event_query(0, event); },
      [&] { return core->event_synchronize(0, event); },   [&] { return graphs->graph_launch(0, graph, stream); },
      [&] { return graphs->capture_begin(0, stream, 0); }};
  for (const auto& call : calls) {
    begin(TB_CAPTURE_RELAXED);
    EXPECT_OK(core->event_record(0, event, stream));
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, call());
    expect_failed_capture();
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->event_synchronize(0, event)); // of a capture that is over
  }
  EXPECT_OK(core->event_record(0, event, stream));
  begin();
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->stream_wait_event(0, stream, event)); // from before
  expect_failed_capture();
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, graphs->capture_begin(0, nullptr, 0));
  EXPECT_OK(graphs->graph_destroy(0, graph));
}

TEST_F(XcpuGraphTest, BranchesHaveToComeTogether) {
  load_async({{"delay_us", "0-300"}});
  std::atomic<int> number{0};
  begin();
  order(other, stream);
  add(other, number);
  expect_failed_capture();
  begin();
  order(other, stream);
  add(other, number);
  order(stream, other);
  EXPECT_OK(graphs->graph_destroy(0, end()));
  EXPECT_EQ(number, 0);
}

TEST_F(XcpuGraphTest, BranchesRunAtTheSameTime) {
  load_async();
  gate waits;
  std::atomic<int> number{0};
  begin();
  order(other, stream);
  waits.enqueue(core, 0, stream);
  add(other, number);
  order(stream, other);
  tb_graph* graph = end();
  EXPECT_OK(graphs->graph_launch(0, graph, stream));
  while (number == 0) std::this_thread::yield();
  waits.open();
  EXPECT_OK(core->stream_synchronize(0, stream));
  EXPECT_OK(graphs->graph_destroy(0, graph));
}

TEST_F(XcpuGraphTest, LaunchesOfOneGraphFollowEachOther) {
  load_async({{"delay_us", "0-300"}});
  unsigned char *a = allocate(0, 100'000), *b = allocate(0, 100'000);
  begin();
  order(other, stream);
  EXPECT_OK(core->memory_copy(0, b, 0, a, 100'000, TB_COPY_DEVICE_TO_DEVICE, other));
  order(stream, other);
  const unsigned char seven = 7;
  EXPECT_OK(core->memory_fill(0, a, &seven, 1, 100'000, stream));
  tb_graph* graph = end();
  upload(0, a, pattern(100'000, 1));
  for (int i = 0; i < 20; ++i) EXPECT_OK(graphs->graph_launch(0, graph, i % 2 ? other : stream));
  EXPECT_OK(graphs->graph_destroy(0, graph)); // while it runs
  EXPECT_OK(core->device_synchronize(0));
  EXPECT_EQ(download(0, b, 100'000), bytes(100'000, 7));
}

TEST_F(XcpuGraphTest, WhatFailsOnABranchIsToldByTheStreamOfTheLaunch) {
  load_async({{"protect", "1"}});
  std::vector<unsigned char> host(100);
  begin();
  order(other, stream);
  EXPECT_OK(core->memory_copy(0, host.data(), -1, host.data(), 100, TB_COPY_HOST_TO_DEVICE, other)); // no device memory
  order(stream, other);
  tb_graph* graph = end();
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(graphs->graph_launch(0, graph, stream));
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->stream_synchronize(0, stream));
    EXPECT_OK(core->stream_synchronize(0, stream));
  }
  EXPECT_OK(graphs->graph_destroy(0, graph));
}

} // namespace
} // namespace torch_backend::testing
