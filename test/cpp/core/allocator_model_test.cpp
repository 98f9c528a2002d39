// The caching allocator on a device with real memory and worker threads, against a model of what is in use. Blocks are
// filled, and checked where streams use them, so that memory which two have at once shows as a wrong pattern.
//
// TB_MODEL_OPERATIONS in the environment: how many operations, all threads together.
#include <array>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include "common/testing/plugin_instance.h"
#include "core/allocator_test_device.h"

namespace torch_backend::test {
namespace {

constexpr int kThreads = 8;
constexpr int kStreams = 4; // fewer than threads: some share one
constexpr int kRounds = 10; // after each, all threads meet and the numbers are compared
constexpr std::size_t kMostLive = 48;

int num_operations() {
  const char* text = std::getenv("TB_MODEL_OPERATIONS");
  return text ? std::atoi(text) : 40000;
}

/// The ranges in use, of all threads.
class LiveRanges {
 public:
  bool add(uintptr_t begin, std::size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto next = ranges_.lower_bound(begin);
    const bool apart = (next == ranges_.end() || begin + size <= next->first) &&
                       (next == ranges_.begin() || std::prev(next)->first + std::prev(next)->second <= begin);
    ranges_[begin] = size;
    bytes_ += size;
    return apart;
  }
  void remove(uintptr_t begin) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_ -= ranges_.at(begin);
    ranges_.erase(begin);
  }
  std::size_t count() const {
    return ranges_.size();
  }
  std::size_t bytes() const {
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, std::size_t> ranges_;
  std::size_t bytes_ = 0;
};

struct Counts {
  std::atomic<int64_t> allocations{0}, frees{0}, ooms{0}, checks{0}, overlaps{0}, wrong_patterns{0};
};

/// A look at a block in stream order.
struct Check {
  const uint64_t* data;
  std::size_t words;
  uint64_t pattern;
  Counts* counts;

  static void run(void* arg) {
    const std::unique_ptr<Check> self(static_cast<Check*>(arg));
    for (std::size_t i = 0; i < self->words; ++i) {
      if (self->data[i] != self->pattern) {
        self->counts->wrong_patterns.fetch_add(1);
        break;
      }
    }
    self->counts->checks.fetch_add(1);
  }
};

struct Piece {
  void* ptr;
  std::size_t words;
  uint64_t pattern;
};

/// Delays, and whether segments are expandable.
class AllocatorModelTest : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  void SetUp() override {
    const std::string delays = std::get<0>(GetParam());
    c10::CachingAllocator::setAllocatorSettings(std::get<1>(GetParam()) ? "expandable_segments:True"
                                                                        : "expandable_segments:False");
    testing::set_options({{"xcpu.async", delays.empty() ? "0" : "1"},
                          {"xcpu.delay_us", delays},
                          {"xcpu.devices", "1"},
                          {"xcpu.memory", "48MiB"}});
    const tb_plugin* plugin = testing::load_plugin(TB_XCPU_PLUGIN);
    ASSERT_NE(plugin, nullptr) << testing::take_failure_text();
    api = std::make_unique<DeviceApi>("xcpu", *plugin->core);
    allocator = std::make_unique<CachingAllocator>(*api, 0);
    for (int i = 1; i < kStreams && api->async(); ++i) {
      handles[static_cast<std::size_t>(i)] = api->stream_create(0, 0);
    }
  }

  void TearDown() override {
    allocator.reset(); // may wait for what used its memory
    for (tb_stream* handle : handles) {
      if (handle) {
        api->stream_destroy(0, handle);
      }
    }
  }

  StreamRef stream(int index) const {
    const auto i = static_cast<std::size_t>(index);
    return {2 * index, handles[i], -1};
  }

  void check_later(const Piece& block, const StreamRef& on) {
    auto check =
        std::make_unique<Check>(Check{static_cast<const uint64_t*>(block.ptr), block.words, block.pattern, &counts});
    api->stream_host_function(0, on.handle, Check::run, check.get());
    check.release();
  }

  void work(int thread, int round, std::vector<Piece>& mine) {
    std::mt19937_64 random(static_cast<uint64_t>(thread) * 1000 + static_cast<uint64_t>(round));
    const auto roll = [&random](uint64_t n) { return random() % n; };
    const auto own = stream(thread % kStreams);
    for (int step = 0; step < num_operations() / kThreads / kRounds; ++step) {
      const auto what = roll(1000);
      if (what < 450 && mine.size() < kMostLive) {
        allocate(own, roll(50) == 0 ? roll(12 * kMiB) : roll(48 * kKiB), random(), mine);
      } else if (what < 600 && !mine.empty()) {
        check_later(mine[roll(mine.size())], own);
      } else if (what < 700 && !mine.empty()) {
        use_elsewhere(mine[roll(mine.size())], own, stream(static_cast<int>(roll(kStreams))));
      } else if (what < 998 && !mine.empty()) {
        std::swap(mine[roll(mine.size())], mine.back());
        give_back(mine);
      } else if (what >= 998) {
        allocator->empty_cache();
      }
    }
  }

  void allocate(const StreamRef& on, std::size_t size, uint64_t pattern, std::vector<Piece>& mine) {
    size = (size + 1 + 7) / 8 * 8;
    try {
      void* ptr = allocator->allocate(size, on);
      void* base = nullptr;
      std::size_t whole = 0;
      EXPECT_TRUE(allocator->owns(ptr, &base, &whole) && base == ptr && whole >= size);
      counts.allocations.fetch_add(1);
      counts.overlaps.fetch_add(!ranges.add(reinterpret_cast<uintptr_t>(ptr), whole));
      api->memory_fill(0, ptr, &pattern, sizeof(pattern), size, on.handle);
      mine.push_back({ptr, size / 8, pattern});
      check_later(mine.back(), on);
    } catch (const c10::OutOfMemoryError&) {
      counts.ooms.fetch_add(1);
    }
  }

  /// On another stream, after what was enqueued so far; free must wait for it.
  void use_elsewhere(const Piece& block, const StreamRef& own, const StreamRef& other) {
    tb_event* ready = api->event_create(0, 0);
    api->event_record(0, ready, own.handle);
    api->stream_wait_event(0, other.handle, ready);
    api->event_destroy(0, ready);
    check_later(block, other);
    EXPECT_TRUE(allocator->record_stream(block.ptr, other));
  }

  void give_back(std::vector<Piece>& mine) {
    ranges.remove(reinterpret_cast<uintptr_t>(mine.back().ptr));
    EXPECT_TRUE(allocator->free(mine.back().ptr));
    counts.frees.fetch_add(1);
    mine.pop_back();
  }

  /// While nobody else works.
  void compare() {
    for (int i = 0; i < kStreams; ++i) {
      api->stream_synchronize(0, stream(i).handle);
    }
    allocator->empty_cache(); // takes back what waited for events
    const auto stats = allocator->statistics();
    EXPECT_EQ(stats.allocation[0].current, static_cast<int64_t>(ranges.count()));
    EXPECT_EQ(stats.allocated_bytes[0].current, static_cast<int64_t>(ranges.bytes()));
    EXPECT_EQ(stats.active[0].current, stats.allocation[0].current);
    EXPECT_EQ(stats.active_bytes[0].current, stats.allocated_bytes[0].current);
    EXPECT_EQ(stats.allocation[0].allocated, counts.allocations);
    EXPECT_EQ(stats.allocation[0].freed, counts.frees);
    EXPECT_EQ(stats.num_ooms, counts.ooms);
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    EXPECT_EQ(api->memory_info(0, &free_bytes, &total_bytes), TB_STATUS_OK);
    EXPECT_EQ(stats.reserved_bytes[0].current, static_cast<int64_t>(total_bytes - free_bytes));
    expect_consistent(*allocator);
  }

  std::unique_ptr<DeviceApi> api;
  std::unique_ptr<CachingAllocator> allocator;
  std::array<tb_stream*, kStreams> handles{};
  LiveRanges ranges;
  Counts counts;
};

TEST_P(AllocatorModelTest, ThreadsAndStreams) {
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::vector<Piece> mine;
      for (int round = 0; round < kRounds; ++round) {
        work(thread, round, mine);
        together.arrive_and_wait();
        if (thread == 0) {
          compare();
        }
        together.arrive_and_wait();
      }
      while (!mine.empty()) {
        give_back(mine);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  compare();
  EXPECT_EQ(counts.overlaps, 0);
  EXPECT_EQ(counts.wrong_patterns, 0);
  EXPECT_EQ(allocator->statistics().reserved_bytes[0].current, 0);
  EXPECT_GT(counts.checks, num_operations() / 4);
  std::printf("%lld allocations, %lld frees, %lld looks, %lld out of memory\n",
              static_cast<long long>(counts.allocations), static_cast<long long>(counts.frees),
              static_cast<long long>(counts.checks), static_cast<long long>(counts.ooms));
}

INSTANTIATE_TEST_SUITE_P(, AllocatorModelTest,
                         ::testing::Combine(::testing::Values("", "0", "0-30"), ::testing::Bool()),
                         [](const auto& info) {
                           const std::string delays = std::get<0>(info.param);
                           const std::string name = delays.empty() ? "Sync" : delays == "0" ? "Async" : "Delayed";
                           return name + (std::get<1>(info.param) ? "Expandable" : "");
                         });

} // namespace
} // namespace torch_backend::test
