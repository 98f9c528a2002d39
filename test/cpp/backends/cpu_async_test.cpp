// Streams and events of the xcpu device.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/child_process.h"
#include "support/xcpu_test.h"

namespace torch_backend::testing {
namespace {

using std::chrono::milliseconds;

class XcpuAsyncTest : public XcpuTest {
 protected:
  void load_async(option_map more = {}) {
    more["async"] = "1";
    load(more);
  }

  // Enqueued, not waited for.
  void enqueue_copy(int32_t device, void* dst, const void* src, size_t size, tb_stream* stream) {
    EXPECT_OK(core->memory_copy(device, dst, device, src, size, TB_COPY_DEVICE_TO_DEVICE, stream));
  }
  void enqueue_fill(int32_t device, void* dst, unsigned char value, size_t size, tb_stream* stream) {
    EXPECT_OK(core->memory_fill(device, dst, &value, 1, size, stream));
  }
};

TEST_F(XcpuAsyncTest, AnIdleStreamHasDoneASmallCopyWhenTheCallReturns) {
  load_async();
  unsigned char *a = allocate(0, 64), *b = allocate(0, 64);
  tb_event* event = create_event(0);
  enqueue_fill(0, a, 7, 64, nullptr);
  enqueue_copy(0, b, a, 64, nullptr);
  EXPECT_OK(core->event_record(0, event, nullptr));
  EXPECT_OK(core->event_query(0, event));
  EXPECT_OK(core->stream_query(0, nullptr));
  EXPECT_EQ(bytes(b, b + 64), bytes(64, 7));
}

TEST_F(XcpuAsyncTest, DelaysHoldForSmallCopies) {
  load_async({{"delay_us", "20000"}});
  unsigned char* a = allocate(0, 64);
  tb_event* event = create_event(0);
  enqueue_fill(0, a, 7, 64, nullptr);
  EXPECT_OK(core->event_record(0, event, nullptr));
  EXPECT_STATUS(TB_STATUS_NOT_READY, core->event_query(0, event));
  EXPECT_STATUS(TB_STATUS_NOT_READY, core->stream_query(0, nullptr));
  EXPECT_OK(core->stream_synchronize(0, nullptr));
  EXPECT_OK(core->event_query(0, event));
}

TEST_F(XcpuAsyncTest, StreamsAndDevicesDoNotWaitForEachOther) {
  load_async();
  tb_stream* other = create_stream(0);
  gate g;
  g.enqueue(core, 0, nullptr);
  unsigned char* ptr = allocate(0, 8);
  enqueue_fill(0, ptr, 5, 8, other);
  EXPECT_OK(core->stream_synchronize(0, other));
  EXPECT_EQ(ptr[7], 5);
  EXPECT_OK(core->device_synchronize(1));
  EXPECT_STATUS(TB_STATUS_NOT_READY, core->stream_query(0, nullptr));
  g.open();
  EXPECT_OK(core->device_synchronize(0));
  EXPECT_OK(core->stream_query(0, nullptr));
}

// Device 0 fills a on one stream and copies it to device 1 on another; device 1 copies on. Only events order the three.
TEST_F(XcpuAsyncTest, EventsOrderStreamsAndDevices) {
  load_async({{"delay_us", "0-1000"}});
  tb_stream *filling = create_stream(0), *sending = create_stream(0), *receiving = create_stream(1);
  tb_event *filled = create_event(0), *sent = create_event(0), *received = create_event(1);
  unsigned char *a = allocate(0, 4096), *b = allocate(1, 4096), *c = allocate(1, 4096);
  for (unsigned char round = 1; round <= 40; ++round) {
    EXPECT_OK(core->stream_wait_event(0, filling, sent)); // of the round before
    enqueue_fill(0, a, round, 4096, filling);
    EXPECT_OK(core->event_record(0, filled, filling));
    EXPECT_OK(core->stream_wait_event(0, sending, filled));
    EXPECT_OK(core->stream_wait_event(0, sending, received)); // of the round before
    EXPECT_OK(core->memory_copy(1, b, 0, a, 4096, TB_COPY_PEER, sending));
    EXPECT_OK(core->event_record(0, sent, sending));
    EXPECT_OK(core->stream_wait_event(1, receiving, sent));
    enqueue_copy(1, c + 16 * round, b + 16 * round, 16, receiving);
    EXPECT_OK(core->event_record(1, received, receiving));
  }
  EXPECT_OK(core->event_synchronize(1, received));
  for (unsigned char round = 1; round <= 40; ++round)
    EXPECT_EQ(bytes(c + 16 * round, c + 16 * round + 16), bytes(16, round));
}

// The lifetimes below are for the sanitizers: the kit sees what happens, not what was read after its end.

TEST_F(XcpuAsyncTest, TheFillPatternIsReadBeforeTheCallReturns) {
  load_async();
  unsigned char* ptr = allocate(0, 64);
  gate g;
  g.enqueue(core, 0, nullptr);
  uint64_t value = 0x0102030405060708;
  EXPECT_OK(core->memory_fill(0, ptr, &value, 8, 64, nullptr));
  value = 0;
  g.open();
  const bytes data = download(0, ptr, 64);
  EXPECT_EQ(data[0], 8);
  EXPECT_EQ(data[63], 1);
}

TEST_F(XcpuAsyncTest, ADestroyedEventIsStillWaitedFor) {
  load_async();
  tb_stream* waiting = create_stream(1);
  tb_event* event = create_event(0);
  gate g;
  g.enqueue(core, 0, nullptr);
  EXPECT_OK(core->event_record(0, event, nullptr));
  EXPECT_OK(core->stream_wait_event(1, waiting, event));
  destroy(event);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_STATUS(TB_STATUS_NOT_READY, core->stream_query(1, waiting));
  g.open();
  EXPECT_OK(core->stream_synchronize(1, waiting));
}

TEST_F(XcpuAsyncTest, ADestroyedStreamCompletesItsWork) {
  load_async({{"delay_us", "2000"}});
  tb_stream* stream = create_stream(0);
  unsigned char* ptr = allocate(0, 20);
  for (unsigned char i = 0; i < 20; ++i) enqueue_fill(0, ptr + i, i, 1, stream);
  destroy(stream);
  EXPECT_OK(core->device_synchronize(0));
  for (unsigned char i = 0; i < 20; ++i) EXPECT_EQ(ptr[i], i);
}

TEST_F(XcpuAsyncTest, DelaysAreInjectedBeforeEveryOperation) {
  load_async({{"delay_us", "2000"}});
  unsigned char* ptr = allocate(0, 1);
  tb_event *start = create_event(0), *end = create_event(0);
  EXPECT_OK(core->event_record(0, start, nullptr));
  for (int i = 0; i < 9; ++i) enqueue_fill(0, ptr, 1, 1, nullptr);
  EXPECT_OK(core->event_record(0, end, nullptr));
  int64_t elapsed = 0;
  EXPECT_STATUS(TB_STATUS_NOT_READY, core->event_elapsed(0, start, end, &elapsed));
  EXPECT_OK(core->event_synchronize(0, end));
  EXPECT_OK(core->event_elapsed(0, start, end, &elapsed));
  EXPECT_GE(elapsed, 10 * 2'000'000);
}

TEST_F(XcpuAsyncTest, TimesNeedEventsMadeForThem) {
  load_async();
  tb_event *timed = create_event(0), *untimed = create_event(0, 0), *unrecorded = create_event(0), *none = nullptr;
  EXPECT_OK(core->event_record(0, timed, nullptr));
  EXPECT_OK(core->event_record(0, untimed, nullptr));
  EXPECT_OK(core->device_synchronize(0));
  int64_t elapsed = 0;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->event_elapsed(0, timed, untimed, &elapsed));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->event_elapsed(0, timed, unrecorded, &elapsed));
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, core->event_create(0, TB_EVENT_INTERPROCESS, &none));
}

TEST_F(XcpuAsyncTest, HandlesBelongToTheirDevice) {
  load_async();
  tb_stream* stream = create_stream(0);
  tb_event* event = create_event(0);
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->stream_synchronize(1, stream));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->event_record(1, event, nullptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->event_query(1, event));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->stream_destroy(0, nullptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->stream_synchronize(2, nullptr));
}

TEST_F(XcpuAsyncTest, PrioritiesHaveTheDeclaredRange) {
  load_async();
  tb_device_properties properties = {};
  properties.struct_size = sizeof properties;
  ASSERT_OK(core->device_properties(0, &properties));
  EXPECT_EQ(properties.stream_priority_lowest, 0);
  EXPECT_EQ(properties.stream_priority_highest, -1);
  tb_stream* stream = nullptr;
  EXPECT_OK(core->stream_create(0, -1, &stream));
  EXPECT_OK(core->stream_destroy(0, stream));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->stream_create(0, 1, &stream));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->stream_create(0, -2, &stream));
}

TEST_F(XcpuAsyncTest, ThreadsShareStreamsAndEvents) {
  load_async({{"delay_us", "0-20"}});
  constexpr int kThreads = 8, kRounds = 100;
  tb_stream* streams[] = {create_stream(0), create_stream(0), nullptr};
  tb_event* shared = create_event(0);
  std::atomic<int> calls{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      unsigned char* mine = allocate(0, 1000);
      for (int i = 0; i < kRounds; ++i) {
        tb_stream* stream = streams[random() % 3];
        enqueue_fill(0, mine, static_cast<unsigned char>(i), 1000, stream);
        EXPECT_OK(core->event_record(0, shared, stream));
        EXPECT_OK(core->stream_wait_event(0, streams[random() % 3], shared));
        EXPECT_OK(core->stream_host_function(
            0, stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &calls));
        if (random() % 4 == 0) core->event_query(0, shared);
        EXPECT_OK(core->stream_synchronize(0, stream));
        ASSERT_EQ(mine[random() % 1000], static_cast<unsigned char>(i));
      }
      release(0, mine, 1000);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_OK(core->device_synchronize(0));
  EXPECT_EQ(calls, kThreads * kRounds);
}

// Whoever runs the work of a stream, its worker or a thread that waits, runs it alone and in order.
TEST_F(XcpuAsyncTest, ThreadsThatWaitRunTheWorkInOrder) {
  load_async();
  constexpr int kThreads = 4, kRounds = 2000;
  struct state {
    std::mutex order; // held while work is enqueued, so that its order is known
    int enqueued = 0, ran = 0, disorder = 0;
    std::set<std::thread::id> ran_on;
  } s;
  struct item {
    state* s;
    int place;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kRounds; ++i) {
        {
          const std::lock_guard<std::mutex> lock(s.order);
          EXPECT_OK(core->stream_host_function(
              0, nullptr,
              [](void* arg) {
                const std::unique_ptr<item> it(static_cast<item*>(arg));
                it->s->disorder += it->s->ran++ != it->place;
                it->s->ran_on.insert(std::this_thread::get_id());
              },
              new item{&s, s.enqueued++}));
        }
        if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
        if (random() % 2 == 0) {
          EXPECT_OK(core->stream_synchronize(0, nullptr));
        }
      }
    });
  std::vector<std::thread::id> ids;
  for (std::thread& thread : threads) ids.push_back(thread.get_id());
  for (std::thread& thread : threads) thread.join();
  EXPECT_OK(core->stream_synchronize(0, nullptr));
  EXPECT_EQ(s.ran, kThreads * kRounds);
  EXPECT_EQ(s.disorder, 0);
  EXPECT_TRUE(std::any_of(ids.begin(), ids.end(), [&](std::thread::id id) { return s.ran_on.count(id) > 0; }));
}

// Work that nobody waits for is the worker's.
TEST_F(XcpuAsyncTest, WorkGoesOnWithoutAWait) {
  load_async();
  std::atomic<int> calls{0};
  for (int round = 1; round <= 50; ++round) {
    EXPECT_OK(
        core->stream_host_function(0, nullptr, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &calls));
    if (round % 3 == 0) {
      EXPECT_OK(core->stream_synchronize(0, nullptr));
    }
    for (int i = 0; i < 10000 && calls < round; ++i) std::this_thread::sleep_for(milliseconds(1));
    ASSERT_EQ(calls, round);
  }
}

TEST_F(XcpuAsyncTest, AThreadThatSleepsIsWokenForWhatItWaitsFor) {
  load_async();
  std::atomic<bool> entered{false};
  gate g;
  EXPECT_OK(core->stream_host_function(
      0, nullptr, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, &entered));
  g.enqueue(core, 0, nullptr);
  while (!entered) std::this_thread::yield(); // the worker is there, so the waiting thread runs nothing itself
  for (int i = 0; i < 200; ++i)
    EXPECT_OK(core->stream_host_function(
        0, nullptr, [](void*) { std::this_thread::sleep_for(std::chrono::microseconds(100)); }, nullptr));
  std::thread opener([&g] {
    std::this_thread::sleep_for(milliseconds(20));
    g.open();
  });
  rusage before, after;
  getrusage(RUSAGE_THREAD, &before);
  EXPECT_OK(core->stream_synchronize(0, nullptr));
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 20);
  opener.join();
}

int64_t cpu_time_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

TEST_F(XcpuAsyncTest, IdleAndBlockedStreamsTakeNoProcessorTime) {
  load_async();
  gate g;
  tb_stream *blocked = create_stream(0), *waiting = create_stream(1);
  tb_event* event = create_event(0);
  for (int i = 0; i < 20; ++i) {
    tb_stream* stream = create_stream(0);
    EXPECT_OK(core->stream_host_function(0, stream, [](void*) {}, nullptr));
    EXPECT_OK(core->stream_synchronize(0, stream));
  }
  g.enqueue(core, 0, blocked);
  EXPECT_OK(core->event_record(0, event, blocked));
  EXPECT_OK(core->stream_wait_event(1, waiting, event));
  std::thread waiter([&] { EXPECT_OK(core->event_synchronize(0, event)); });
  std::this_thread::sleep_for(milliseconds(100));
  const int64_t before = cpu_time_us();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(cpu_time_us() - before, 30'000); // one thread that spins takes ten times as much
  g.open();
  waiter.join();
  EXPECT_OK(core->stream_synchronize(1, waiting));
}

int num_threads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST_F(XcpuAsyncTest, DestroyedStreamsLeaveNoThreads) {
  load_async();
  synchronize(0); // starts the default stream's worker, and with it helper threads of the thread library
  const int before = num_threads();
  for (int i = 0; i < 300; ++i) {
    tb_stream* stream = create_stream(0);
    EXPECT_OK(core->stream_host_function(0, stream, [](void*) {}, nullptr));
    destroy(stream);
  }
  for (int i = 0; i < 1000 && num_threads() > before; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_LE(num_threads(), before); // threads of earlier tests may have gone too
}

TEST_F(XcpuAsyncTest, TheProcessExitsWhileWorkersAreBusyAndBlocked) {
  EXPECT_EQ(run_in_child([this] {
              load_async({{"delay_us", "100"}});
              gate& never = *new gate; // destroying it would wait for the worker
              tb_stream* blocked = create_stream(0);
              never.enqueue(core, 0, blocked);
              unsigned char *a = allocate(0, 1 << 20), *b = allocate(0, 1 << 20);
              for (int i = 0; i < 20000; ++i) enqueue_copy(0, b, a, 1 << 20, nullptr);
              return HasFailure() ? 1 : 0;
            }),
            0);
}

TEST_F(XcpuAsyncTest, AForkedChildIsToldAndExits) {
  load_async({{"delay_us", "0-50"}});
  unsigned char* ptr = allocate(0, 64);
  std::atomic<bool> stop{false};
  std::thread busy([&] { // so that the fork meets held locks and running workers
    while (!stop) {
      enqueue_fill(0, ptr, 1, 64, nullptr);
      EXPECT_OK(core->stream_synchronize(0, nullptr));
    }
  });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(run_in_child([this] {
                if (core->stream_synchronize(0, nullptr) != TB_STATUS_INTERNAL) return 1;
                return take_failure_text().find("forked") == std::string::npos ? 2 : 0;
              }),
              0);
  stop = true;
  busy.join();
}

TEST_F(XcpuAsyncTest, AForkBeforeInitializeDoesNoHarm) {
  EXPECT_EQ(run_in_child([] {
              set_options({{"xcpu.async", "1"}});
              const tb_core_table* core = load_plugin(TB_XCPU_PLUGIN)->core;
              int32_t count = 0;
              core->device_count(&count);
              return run_in_child([core] {
                if (core->initialize() != TB_STATUS_OK) return 1;
                return core->stream_synchronize(0, nullptr) == TB_STATUS_OK ? 0 : 2;
              });
            }),
            0);
}

} // namespace
} // namespace torch_backend::testing
