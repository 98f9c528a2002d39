// The caching allocator under random use, many threads, re-entrance, and a plugin that fails.
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <set>
#include <thread>

#include <c10/util/Exception.h>

#include "core/allocator_test_device.h"

namespace torch_backend::test {
namespace {

/// What is in use, kept by the test itself.
class Model {
 public:
  struct Range {
    std::size_t size;
    int64_t stream;
    std::set<int64_t> uses;
  };

  /// Fails if the new range overlaps one that is in use or pending.
  void add(uintptr_t address, std::size_t size, int64_t stream) {
    for (const auto* ranges : {&live, &pending}) {
      auto next = ranges->lower_bound(address);
      EXPECT_TRUE(next == ranges->end() || address + size <= next->first);
      EXPECT_TRUE(next == ranges->begin() || std::prev(next)->first + std::prev(next)->second.size <= address);
    }
    live[address] = {size, stream, {}};
  }

  void remove(uintptr_t address) {
    auto range = live.extract(address);
    if (!range.mapped().uses.empty()) {
      pending.insert(std::move(range));
    }
  }

  void complete(int64_t stream) {
    for (auto it = pending.begin(); it != pending.end();) {
      it->second.uses.erase(stream);
      it = it->second.uses.empty() ? pending.erase(it) : std::next(it);
    }
  }

  std::map<uintptr_t, Range> live;
  std::map<uintptr_t, Range> pending;
};

/// Whether the device is asynchronous, and whether segments are expandable.
class AllocatorStressTest : public AllocatorTest, public ::testing::WithParamInterface<std::tuple<bool, bool>> {};

TEST_P(AllocatorStressTest, RandomUseAgreesWithAModel) {
  const auto [async, expandable] = GetParam();
  configure(expandable ? "expandable_segments:True" : "expandable_segments:False");
  restart({.async = async, .memory_bytes = 512 * kMiB, .commit_granularity_bytes = 2 * kMiB});
  Model model;
  std::mt19937 random(async ? 7 : 11);
  const auto roll = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::array<int64_t, 3> streams{0, 2, 4};
  int64_t ooms = 0;
  // A full device makes the allocator wait for events, and the model has to learn that.
  const auto learn = [&] {
    for (const int64_t stream : streams) {
      bool any_pending = false;
      for (const auto& [handle, event] : device->events) {
        any_pending |= !event->complete && event->stream == stream;
      }
      if (!any_pending) {
        model.complete(stream);
      }
    }
  };

  for (int step = 0; step < 30000; ++step) {
    const int64_t on = streams[static_cast<std::size_t>(roll(3))];
    const int what = roll(100);
    if (what < 50) {
      const std::size_t magnitude = std::size_t{1} << roll(26);
      const std::size_t size = 1 + random() % magnitude;
      try {
        void* ptr = allocate(size, on);
        const auto address = reinterpret_cast<uintptr_t>(ptr);
        EXPECT_EQ(address % 64, 0u);
        void* base = nullptr;
        std::size_t block = 0;
        ASSERT_TRUE(allocator->owns(ptr, &base, &block));
        ASSERT_GE(block, size);
        learn();
        model.add(address, block, on);
        ASSERT_TRUE(device->has_memory(address, block)) << "beyond the segment";
        const auto segment = device->live.upper_bound(address);
        if (async && !expandable) {
          ASSERT_EQ(device->stream_of_segment[std::prev(segment)->first], on) << "memory of another stream";
        }
      } catch (const c10::OutOfMemoryError&) {
        ++ooms;
        learn();
      }
    } else if (what < 90 && !model.live.empty()) {
      auto victim = std::next(model.live.begin(), roll(static_cast<int>(model.live.size())));
      void* ptr = reinterpret_cast<void*>(victim->first);
      if (roll(3) == 0 && on != victim->second.stream) {
        ASSERT_TRUE(allocator->record_stream(ptr, stream(on)));
        if (async) {
          victim->second.uses.insert(on);
        }
      }
      model.remove(victim->first);
      ASSERT_TRUE(allocator->free(ptr));
    } else if (what < 98) {
      device->complete(on);
      model.complete(on);
    } else if (roll(10) == 0) {
      allocator->empty_cache();
      learn();
    }
    if (step % 500 == 0) {
      expect_consistent(*allocator);
      ASSERT_EQ(stats().allocation[0].current, static_cast<int64_t>(model.live.size()));
      ASSERT_EQ(reserved_bytes(), static_cast<int64_t>(device->live_bytes()));
    }
    if (HasFailure()) {
      FAIL() << "at step " << step;
    }
  }
  EXPECT_EQ(stats().num_ooms, ooms);
  EXPECT_GT(ooms, 0) << "the test should have filled the device";
  for (const auto& [address, range] : model.live) {
    allocator->free(reinterpret_cast<void*>(address));
  }
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u);
  EXPECT_EQ(reserved_bytes(), 0);
  EXPECT_EQ(device->frees_of_busy_streams, 0);
}

INSTANTIATE_TEST_SUITE_P(, AllocatorStressTest, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Async" : "Sync") +
                                  (std::get<1>(info.param) ? "Expandable" : "");
                         });

// While any slot runs, another thread uses the allocator: it would hang if a lock were held.
TEST_F(AllocatorTest, NoLockIsHeldWhileThePluginIsCalled) {
  restart({.memory_bytes = 64 * kMiB});
  std::set<std::string> seen;
  std::atomic<bool> inside{false};
  device->on_slot = [&](const std::string& slot) {
    if (inside.exchange(true)) {
      return; // only one level
    }
    seen.insert(slot);
    auto other = std::async(std::launch::async, [&] {
      void* held = nullptr;
      try {
        held = allocate(512, 8);
      } catch (const c10::OutOfMemoryError&) {}
      allocator->statistics();
      allocator->snapshot(std::nullopt, true);
      allocator->free(held);
    });
    EXPECT_EQ(other.wait_for(std::chrono::seconds(30)), std::future_status::ready) << slot;
    inside = false;
  };
  void* a = allocate(20 * kMiB);
  allocator->record_stream(a, stream(2));
  allocator->free(a);
  allocator->free(allocate(512));                           // queries
  EXPECT_THROW(allocate(80 * kMiB), c10::OutOfMemoryError); // waits, frees, asks again
  allocator->memory_info();
  allocator->empty_cache();
  device->on_slot = nullptr;
  EXPECT_EQ(seen, (std::set<std::string>{"event_create", "event_query", "event_record", "event_synchronize",
                                         "memory_allocate", "memory_free", "memory_info", "stream_synchronize"}));
}

TEST_F(AllocatorTest, ARequestWaitsForMemoryThatAnotherThreadIsGivingBack) {
  restart({.memory_bytes = 64 * kMiB});
  void* a = allocate(40 * kMiB);
  allocator->free(a);
  std::promise<void> freeing;
  std::atomic<bool> first{true};
  device->on_slot = [&](const std::string& slot) {
    if (slot == "memory_free" && first.exchange(false)) {
      freeing.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  };
  std::thread other([&] { allocator->empty_cache(); });
  freeing.get_future().wait();
  void* b = nullptr;
  EXPECT_NO_THROW(b = allocate(50 * kMiB));
  other.join();
  device->on_slot = nullptr;
  allocator->free(b);
}

/// Uses every slot the allocator knows, and forgives failures.
void use_everything(CachingAllocator& allocator) {
  std::vector<void*> live;
  const auto forgiving = [](const std::function<void()>& step) {
    try {
      step();
    } catch (const c10::Error&) {}
  };
  const auto allocate = [&](std::size_t size, int64_t on) {
    forgiving([&] { live.push_back(allocator.allocate(size, stream(on))); });
  };
  const auto free_last = [&] {
    if (!live.empty()) {
      EXPECT_TRUE(allocator.free(live.back()));
      live.pop_back();
    }
  };
  allocate(512, 0);
  allocate(3 * kMiB, 2);
  if (!live.empty()) {
    allocator.record_stream(live.back(), stream(4));
    allocator.record_stream(live.back(), stream(6));
  }
  free_last();
  allocate(512, 0);
  allocate(40 * kMiB, 0);
  free_last();
  allocate(60 * kMiB, 2); // only after the others were given back
  allocate(80 * kMiB, 2); // never
  forgiving([&] { allocator.memory_info(); });
  forgiving([&] { allocator.empty_cache(); });
  while (!live.empty()) {
    free_last();
  }
  forgiving([&] { allocator.empty_cache(); });
}

class FailingSlotsTest : public AllocatorTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingSlotsTest, AnyFailingCallLeaksNothing) {
  configure(GetParam());
  for (const tb_status status : {TB_STATUS_INTERNAL, TB_STATUS_OUT_OF_MEMORY, TB_STATUS_DEVICE_LOST}) {
    int64_t call = 0;
    for (bool failed = true; failed; ++call) {
      restart({.memory_bytes = 64 * kMiB, .commit_granularity_bytes = 2 * kMiB});
      device->fail_at = call;
      device->fail_with = status;
      use_everything(*allocator);
      expect_consistent(*allocator);
      EXPECT_EQ(stats().allocated_bytes[0].current, 0);
      EXPECT_EQ(stats().active_bytes[0].current, 0) << "call " << call;
      allocator.reset();
      failed = device->failed;
      if (status == TB_STATUS_DEVICE_LOST) {
        EXPECT_EQ(device->calls_after_lost, 0) << "call " << call;
      } else {
        // A free that fails has freed nothing, and there is nothing else to try.
        EXPECT_LE(device->num_live_segments(), failed ? 1u : 0u) << "call " << call;
        EXPECT_TRUE(device->events.empty()) << "call " << call;
      }
    }
    EXPECT_GT(call, 20) << "the scenario makes too few calls to mean much";
  }
}

INSTANTIATE_TEST_SUITE_P(, FailingSlotsTest, ::testing::Values("expandable_segments:False", "expandable_segments:True"),
                         [](const auto& info) { return info.index ? "Expandable" : "Fixed"; });

} // namespace
} // namespace torch_backend::test
