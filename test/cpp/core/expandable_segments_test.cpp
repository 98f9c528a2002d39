// Segments that grow, on a device that has addresses without memory.
#include <algorithm>
#include <set>

#include <c10/util/Exception.h>

#include "core/allocator_test_device.h"

namespace torch_backend::test {
namespace {

constexpr auto kPage = static_cast<int64_t>(20 * kMiB);

class ExpandableSegmentsTest : public AllocatorTest {
 protected:
  ExpandableSegmentsTest() {
    configure("expandable_segments:True");
    restart_with({});
  }
  void restart_with(DeviceOptions options) {
    options.commit_granularity_bytes = 2 * kMiB;
    restart(options);
  }
  void free_all(const std::vector<void*>& blocks) {
    for (void* block : blocks) {
      EXPECT_TRUE(allocator->free(block));
    }
  }
  std::vector<SegmentSnapshot> segments() {
    return allocator->snapshot(std::nullopt, false).segments;
  }
};

char* at(void* ptr, std::size_t offset) {
  return static_cast<char*>(ptr) + offset;
}

TEST_F(ExpandableSegmentsTest, ASegmentGrowsWhereItEnds) {
  void* a = allocate(15 * kMiB);
  EXPECT_EQ(reserved_bytes(), kPage);
  void* b = allocate(15 * kMiB);
  EXPECT_EQ(b, at(a, 15 * kMiB)) << "what was left of the first page is a part of it";
  EXPECT_EQ(reserved_bytes(), 2 * kPage);
  EXPECT_EQ(device->num_reserves, 1);
  EXPECT_EQ(device->num_allocates, 0);
  ASSERT_EQ(segments().size(), 1u);
  EXPECT_TRUE(segments()[0].is_expandable);
  EXPECT_EQ(segments()[0].total_size, 40 * kMiB);
  expect_consistent(*allocator);
  free_all({a, b});
  expect_consistent(*allocator);
  EXPECT_EQ(allocate(40 * kMiB), a);
  EXPECT_EQ(reserved_bytes(), 2 * kPage);
  allocator->free(a);
}

TEST_F(ExpandableSegmentsTest, StreamsAndSizesHaveSegmentsOfTheirOwn) {
  const std::vector<void*> blocks{allocate(512), allocate(512, 2), allocate(15 * kMiB), allocate(15 * kMiB, 2)};
  EXPECT_EQ(device->num_reserves, 4);
  EXPECT_EQ(reserved_bytes(), static_cast<int64_t>(44 * kMiB));
  EXPECT_EQ(segments().size(), 4u);
  free_all(blocks);
}

TEST_F(ExpandableSegmentsTest, BlocksAreCutHoweverLittleIsLeft) {
  void* a = allocate(20 * kMiB - 512);
  EXPECT_EQ(allocated_bytes(), static_cast<int64_t>(20 * kMiB - 512));
  allocator->free(a);
}

TEST_F(ExpandableSegmentsTest, EmptyCacheGivesBackPagesFromTheMiddle) {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(allocate(15 * kMiB));
  }
  EXPECT_EQ(reserved_bytes(), 6 * kPage);
  free_all({blocks[1], blocks[2], blocks[3], blocks[4]}); // from 15 to 75 MiB
  allocator->empty_cache();
  EXPECT_EQ(reserved_bytes(), 4 * kPage) << "the pages from 20 to 60 MiB";
  EXPECT_EQ(reserved_bytes(), static_cast<int64_t>(device->live_bytes()));
  EXPECT_EQ(segments().size(), 2u);
  expect_consistent(*allocator);

  EXPECT_EQ(allocate(14 * kMiB), at(blocks[1], 45 * kMiB)) << "what is left of the page from 60 MiB on";
  EXPECT_EQ(device->num_decommits, 2);
  EXPECT_EQ(allocate(45 * kMiB), blocks[1]) << "the gap and what is free on both sides are one block again";
  EXPECT_EQ(reserved_bytes(), 6 * kPage);
  EXPECT_EQ(segments().size(), 1u);
  expect_consistent(*allocator);
  free_all({blocks[0], blocks[1], at(blocks[1], 45 * kMiB), blocks[5], blocks[6], blocks[7]});
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u) << "addresses go with the last page";
  expect_consistent(*allocator);
}

TEST_F(ExpandableSegmentsTest, TheTopMovesDownWhenItIsGivenBack) {
  void* a = allocate(20 * kMiB);
  void* b = allocate(20 * kMiB);
  void* c = allocate(25 * kMiB);
  free_all({a, c});
  allocator->empty_cache();
  EXPECT_EQ(reserved_bytes(), kPage);
  EXPECT_EQ(allocate(25 * kMiB), c);
  EXPECT_EQ(allocate(20 * kMiB), a);
  expect_consistent(*allocator);
  free_all({a, b, c});
}

/// Steps of which each needs more than all before, and leaves half of that in use: what it leaves free is too small for
/// those that follow, unless it can grow.
int64_t steps_until_full(CachingAllocator& allocator) {
  std::vector<void*> kept;
  int64_t steps = 0;
  try {
    for (std::size_t size = 20 * kMiB;; size += 20 * kMiB, ++steps) {
      allocator.free(allocator.allocate(size, stream(0)));
      kept.push_back(allocator.allocate(size / 2, stream(0)));
    }
  } catch (const c10::OutOfMemoryError&) {}
  for (void* each : kept) {
    allocator.free(each);
  }
  return steps;
}

TEST_F(ExpandableSegmentsTest, GrowingRequestsDoNotFragmentTheDevice) {
  const DeviceOptions options{.memory_bytes = 512 * kMiB};
  configure("expandable_segments:False");
  restart_with(options);
  const int64_t fixed = steps_until_full(*allocator);
  configure("expandable_segments:True");
  restart_with(options);
  const int64_t expandable = steps_until_full(*allocator);
  EXPECT_EQ(fixed, 6) << "of 420 MiB";
  EXPECT_EQ(expandable, 8) << "of 160 MiB, and 280 that are in use";
  expect_consistent(*allocator);
}

TEST_F(ExpandableSegmentsTest, AFullDeviceGivesBackPagesAndTriesAgain) {
  restart_with({.memory_bytes = 100 * kMiB});
  void* a = allocate(40 * kMiB);
  void* wall = allocate(10 * kMiB);
  allocator->free(a);
  void* b = allocate(70 * kMiB);
  EXPECT_EQ(stats().num_alloc_retries, 1);
  EXPECT_EQ(reserved_bytes(), static_cast<int64_t>(device->live_bytes()));
  expect_consistent(*allocator);
  free_all({wall, b});
}

TEST_F(ExpandableSegmentsTest, ARefusedRequestTakesNothing) {
  restart_with({.memory_bytes = 100 * kMiB});
  void* a = allocate(30 * kMiB);
  const int64_t before = reserved_bytes();
  EXPECT_THROW(allocate(90 * kMiB), c10::OutOfMemoryError);
  EXPECT_EQ(reserved_bytes(), before);
  EXPECT_EQ(device->live_bytes(), static_cast<std::size_t>(before));
  expect_consistent(*allocator);
  allocator->free(a);
}

TEST_F(ExpandableSegmentsTest, TheRestOfADeviceThatIsNoWholePageIsUsed) {
  restart_with({.memory_bytes = 50 * kMiB});
  void* a = allocate(40 * kMiB);
  void* b = allocate(8 * kMiB);
  EXPECT_EQ(device->num_allocates, 1);
  free_all({a, b});
}

TEST_F(ExpandableSegmentsTest, TheFractionLimitsPages) {
  restart_with({.memory_bytes = 400 * kMiB});
  allocator->set_memory_fraction(0.1);
  void* a = allocate(15 * kMiB);
  void* b = allocate(15 * kMiB);
  EXPECT_THROW(allocate(15 * kMiB), c10::OutOfMemoryError);
  expect_consistent(*allocator);
  free_all({a, b});
}

TEST_F(ExpandableSegmentsTest, MemoryOfUnknownSizeGrowsToo) {
  restart_with({.memory_bytes = 100 * kMiB, .says_total = false, .has_memory_info = false});
  void* a = allocate(30 * kMiB);
  void* b = allocate(30 * kMiB);
  EXPECT_EQ(device->num_allocates, 0);
  EXPECT_EQ(segments().size(), 1u);
  EXPECT_THROW(allocate(std::size_t{1} << 50), c10::OutOfMemoryError);
  EXPECT_EQ(reserved_bytes(), 3 * kPage) << "nothing was committed for it";
  expect_consistent(*allocator);
  free_all({a, b});
}

TEST_F(ExpandableSegmentsTest, ADeviceWithoutAddressesGivesSegments) {
  device->fail_at = device->num_calls;
  device->fail_with = TB_STATUS_OUT_OF_MEMORY;
  void* a = allocate(15 * kMiB);
  EXPECT_TRUE(device->failed);
  EXPECT_EQ(device->num_allocates, 1);
  EXPECT_FALSE(segments()[0].is_expandable);
  allocator->free(a);
}

TEST_F(ExpandableSegmentsTest, PagesThatDoNotGoStayFree) {
  void* a = allocate(60 * kMiB);
  allocator->free(a);
  device->fail_at = device->num_calls + 2; // after the wait for the stream and the first page
  allocator->empty_cache();
  EXPECT_TRUE(device->failed);
  EXPECT_EQ(reserved_bytes(), 2 * kPage);
  EXPECT_EQ(reserved_bytes(), static_cast<int64_t>(device->live_bytes()));
  expect_consistent(*allocator);
  EXPECT_EQ(allocate(40 * kMiB), at(a, 20 * kMiB));
  allocator->free(at(a, 20 * kMiB));
}

TEST_F(ExpandableSegmentsTest, PagesAreWaitedForHoweverMemoryIsOrdered) {
  restart_with({.extra_capabilities = TB_CAP_STREAM_ALLOC});
  void* a = allocate(15 * kMiB, 2);
  device->enqueue_work(2);
  allocator->free(a);
  allocator->empty_cache();
  EXPECT_EQ(device->num_decommits, 1);
  EXPECT_FALSE(device->busy[2]);
}

TEST_F(ExpandableSegmentsTest, AHeldPoolKeepsItsPages) {
  const auto pool = generate_mempool_id(true);
  allocator->begin_allocate_to_pool(pool, [](const StreamRef&) { return true; }, false);
  void* a = allocate(15 * kMiB);
  allocator->end_allocate_to_pool(pool);
  allocator->free(a);
  allocator->empty_cache();
  EXPECT_EQ(reserved_bytes(), kPage);
  EXPECT_EQ(segments()[0].pool, pool);
  allocator->release_pool(pool);
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u);
  EXPECT_EQ(allocator->pool_use_count(pool), 0);
}

TEST_F(ExpandableSegmentsTest, APoolIsSetToWhatWasInUse) {
  const auto pool = generate_mempool_id(true);
  allocator->begin_allocate_to_pool(pool, [](const StreamRef&) { return true; }, false);
  void* a = allocate(15 * kMiB);
  void* b = allocate(3 * kMiB);
  allocator->free(a);
  const auto before = allocator->checkpoint_pool(pool);
  void* c = allocate(90 * kMiB);
  allocator->free(b);
  allocator->restore_pool(before);
  EXPECT_FALSE(allocator->free(c));
  EXPECT_EQ(allocate(15 * kMiB), a);
  EXPECT_TRUE(allocator->free(a));
  EXPECT_TRUE(allocator->free(b));
  allocator->end_allocate_to_pool(pool);
  allocator->release_pool(pool);
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u);
}

TEST_F(ExpandableSegmentsTest, TheHistoryHasPages) {
  allocator->record_history({.enabled = true, .max_entries = 100});
  void* a = allocate(30 * kMiB);
  allocator->free(a);
  allocator->empty_cache();
  std::vector<std::pair<std::string, std::size_t>> pages;
  for (const auto& entry : allocator->snapshot(std::nullopt, true).trace) {
    const std::string action = trace_action_name(entry.action);
    if (action.rfind("segment_", 0) == 0) {
      EXPECT_EQ(entry.address, reinterpret_cast<uintptr_t>(a));
      pages.emplace_back(action, entry.size);
    }
  }
  const std::vector<std::pair<std::string, std::size_t>> expected{{"segment_map", 40 * kMiB},
                                                                  {"segment_unmap", 40 * kMiB}};
  EXPECT_EQ(pages, expected);
}

TEST_F(ExpandableSegmentsTest, OtherProcessesDoNotGetThem) {
  restart_with({.extra_capabilities = TB_CAP_IPC});
  void* a = allocate(512);
  tb_ipc_handle handle;
  uint64_t offset = 0;
  try {
    allocator->export_memory(a, &handle, &offset);
    ADD_FAILURE() << "it was lent";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("expandable_segments:True"), std::string::npos);
  }
  EXPECT_EQ(device->num_exports, 0);
  allocator->free(a);
  EXPECT_EQ(stats().active[0].current, 0) << "what was not lent is not waited for";
}

TEST_F(ExpandableSegmentsTest, TheSettingIsReadWhenMemoryIsNeeded) {
  void* a = allocate(15 * kMiB);
  configure("expandable_segments:False");
  void* b = allocate(15 * kMiB);
  EXPECT_EQ(device->num_allocates, 1);
  configure("expandable_segments:True");
  EXPECT_EQ(allocate(25 * kMiB), at(a, 15 * kMiB));
  expect_consistent(*allocator);
  free_all({a, b, at(a, 15 * kMiB)});
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u);
}

TEST_F(ExpandableSegmentsTest, OversizeLimitsAreForSegmentsOfFixedSize) {
  configure("expandable_segments:True,max_split_size_mb:20");
  void* a = allocate(100 * kMiB);
  allocator->free(a);
  EXPECT_EQ(allocate(5 * kMiB), a);
  EXPECT_EQ(reserved_bytes(), 5 * kPage);
  allocator->free(a);
}

} // namespace
} // namespace torch_backend::test
