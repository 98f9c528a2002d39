// The caching allocator: blocks, streams, limits, pools, history.
#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <c10/util/Exception.h>

#include "core/allocator_test_device.h"
#include "csrc/memory/FreeList.h"

namespace torch_backend::test {
namespace {

char* at(void* ptr, std::size_t offset) {
  return static_cast<char*>(ptr) + offset;
}

// ---- blocks ----

TEST_F(AllocatorTest, SmallRequestsShareASegment) {
  void* a = allocate(100);
  void* b = allocate(1000);
  EXPECT_EQ(at(a, 512), b);
  EXPECT_EQ(device->num_allocates, 1);
  EXPECT_EQ(reserved_bytes(), static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(allocated_bytes(), 512 + 1024);
  EXPECT_EQ(stats().requested_bytes[0].current, 1100);
  expect_consistent(*allocator);
  allocator->free(a);
  allocator->free(b);
}

TEST_F(AllocatorTest, FreedNeighboursMergeInAnyOrder) {
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(allocate(kMiB / 2));
    }
    for (const int i : order) {
      EXPECT_TRUE(allocator->free(blocks[static_cast<std::size_t>(i)]));
      expect_consistent(*allocator);
    }
    EXPECT_EQ(stats().inactive_split[0].current, 0);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(device->num_allocates, 1);
}

// Note [Loose blocks]: they are not looked at before all are free, which would merge them.
TEST_F(AllocatorTest, SmallBlocksServeTheirSizeUntilMemoryIsNeeded) {
  constexpr std::size_t kBlocks = 2 * kMiB / 512;
  std::vector<void*> blocks(kBlocks);
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    for (auto& block : blocks) {
      block = allocate(512);
    }
    EXPECT_EQ(device->num_allocates, 1);
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (void* block : blocks) {
      allocator->free(block);
    }
    EXPECT_EQ(allocate(512), blocks.back()) << "the one that was freed last";
    allocator->free(blocks.back());
    void* whole = allocate(kMiB); // of which there is no piece
    EXPECT_EQ(device->num_allocates, 1);
    allocator->free(whole);
    expect_consistent(*allocator);
    EXPECT_EQ(stats().inactive_split[0].current, 0);
  }
  for (auto& block : blocks) {
    block = allocate(512);
  }
  for (void* block : blocks) {
    allocator->free(block);
  }
  allocator->empty_cache();
  EXPECT_EQ(device->live_bytes(), 0u) << "a segment of loose blocks is given back";
}

TEST_F(AllocatorTest, TheBestFitIsTaken) {
  void* big = allocate(8 * kKiB);
  void* wall1 = allocate(512);
  void* fit = allocate(3 * kKiB);
  void* wall2 = allocate(512);
  allocator->free(fit);
  allocator->free(big);
  EXPECT_EQ(allocate(3 * kKiB), fit);
  EXPECT_EQ(allocate(8 * kKiB), big);
  for (void* ptr : {big, wall1, fit, wall2}) {
    allocator->free(ptr);
  }
}

TEST_F(AllocatorTest, SegmentSizesFollowTheRequest) {
  const std::pair<std::size_t, std::size_t> cases[] = {
      {1, 2 * kMiB}, {kMiB, 2 * kMiB}, {kMiB + 1, 20 * kMiB}, {10 * kMiB, 10 * kMiB}, {33 * kMiB, 34 * kMiB}};
  for (const auto& [request, segment] : cases) {
    restart({});
    allocator->free(allocate(request));
    EXPECT_EQ(device->live_bytes(), segment) << request;
  }
}

TEST_F(AllocatorTest, PluginRequestsAreMultiplesOfTheGranularity) {
  restart({.granularity_bytes = 64 * kMiB});
  allocator->free(allocate(1));
  allocator->free(allocate(70 * kMiB));
  std::set<uint64_t> sizes;
  for (const auto& [address, size] : device->live) {
    sizes.insert(size);
  }
  EXPECT_EQ(sizes, (std::set<uint64_t>{64 * kMiB, 128 * kMiB}));
}

TEST_F(AllocatorTest, LargeBlocksAreCutOnlyIfAMegabyteIsLeft) {
  void* a = allocate(19 * kMiB + kMiB / 2);
  allocator->free(a);
  EXPECT_EQ(device->live_bytes(), 20 * kMiB);
  void* b = allocate(12 * kMiB);
  EXPECT_EQ(allocated_bytes(), static_cast<int64_t>(12 * kMiB));
  allocator->free(b);
  b = allocate(19 * kMiB + kMiB / 4);
  EXPECT_EQ(allocated_bytes(), static_cast<int64_t>(20 * kMiB));
  allocator->free(b);
}

TEST_F(AllocatorTest, FreeOfUnknownMemoryIsRefused) {
  void* a = allocate(512);
  EXPECT_FALSE(allocator->free(at(a, 512)));
  EXPECT_FALSE(allocator->free(&a));
  EXPECT_TRUE(allocator->free(a));
  EXPECT_FALSE(allocator->free(a)) << "a second free";
  EXPECT_FALSE(allocator->record_stream(a, stream(2)));
}

TEST_F(AllocatorTest, OwnsKnowsTheAllocationAroundAnAddress) {
  void* a = allocate(10000);
  void* base = nullptr;
  std::size_t size = 0;
  EXPECT_TRUE(allocator->owns(at(a, 5000), &base, &size));
  EXPECT_EQ(base, a);
  EXPECT_EQ(size, 10240u);
  EXPECT_FALSE(allocator->owns(at(a, 10240), &base, &size)) << "cached, not in use";
  EXPECT_FALSE(allocator->owns(at(a, 16 * kMiB), &base, &size));
  EXPECT_FALSE(allocator->owns(&base, &base, &size));
  allocator->free(a);
  EXPECT_FALSE(allocator->owns(a, &base, &size));
}

TEST(FreeList, FindsTheSmallestBlockThatFits) {
  FreeList list;
  std::vector<Block> blocks(3000);
  std::set<std::pair<std::size_t, std::size_t>> model; // size, index
  uint32_t random = 1;
  const auto next = [&random] { return random = random * 1664525u + 1013904223u; };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const unsigned magnitude = next() >> 28;
    blocks[i].size = (1 + (next() >> 16) % ((std::size_t{1} << magnitude) * 3)) * FreeList::kGrain;
  }
  for (int step = 0; step < 60000; ++step) {
    const std::size_t i = (next() >> 8) % blocks.size();
    if (model.erase({blocks[i].size, i})) {
      list.remove(&blocks[i]);
    } else {
      model.insert({blocks[i].size, i});
      list.insert(&blocks[i]);
    }
    const std::size_t size = blocks[(next() >> 8) % blocks.size()].size;
    const auto expected = model.lower_bound({size, 0});
    const Block* found = list.best_fit(size);
    ASSERT_EQ(found != nullptr, expected != model.end());
    ASSERT_TRUE(!found || found->size == expected->first);
    ASSERT_EQ(list.empty(), model.empty());
  }
}

// ---- streams ----

TEST_F(AllocatorTest, FreedMemoryStaysWithItsStream) {
  void* a = allocate(512, 0);
  allocator->free(a);
  void* b = allocate(512, 2);
  EXPECT_NE(a, b);
  EXPECT_EQ(allocate(512, 0), a);
  allocator->free(a);
  allocator->free(b);
}

TEST_F(AllocatorTest, AStreamThatUsedTheMemoryDelaysItsReuse) {
  void* a = allocate(512);
  EXPECT_TRUE(allocator->record_stream(a, stream(2)));
  EXPECT_TRUE(allocator->record_stream(a, stream(4)));
  EXPECT_TRUE(allocator->record_stream(a, stream(2)));
  allocator->free(a);
  EXPECT_EQ(allocated_bytes(), 0);
  EXPECT_EQ(stats().active_bytes[0].current, 512);
  EXPECT_EQ(device->events.size(), 2u) << "one per stream";

  void* b = allocate(512);
  EXPECT_NE(b, a);
  device->complete(2);
  void* c = allocate(512);
  EXPECT_NE(c, a) << "one of two streams is done";
  device->complete(4);
  EXPECT_EQ(allocate(512), a);
  for (void* ptr : {a, b, c}) {
    allocator->free(ptr);
  }
  expect_consistent(*allocator);
}

TEST_F(AllocatorTest, TheOwnStreamNeedsNoEvent) {
  void* a = allocate(512, 2);
  EXPECT_TRUE(allocator->record_stream(a, stream(2)));
  allocator->free(a);
  EXPECT_EQ(device->num_event_creates, 0);
  EXPECT_EQ(allocate(512, 2), a);
  allocator->free(a);
}

TEST_F(AllocatorTest, EventsAreReusedOnlyIfThePluginAllowsIt) {
  for (const bool rerecord : {true, false}) {
    restart({.extra_capabilities = rerecord ? TB_CAP_EVENT_RERECORD : 0});
    for (int i = 0; i < 10; ++i) {
      void* a = allocate(512);
      allocator->record_stream(a, stream(2));
      allocator->free(a);
      device->complete_all();
    }
    allocator->empty_cache();
    EXPECT_EQ(device->num_event_creates, rerecord ? 1 : 10);
    EXPECT_EQ(device->events.size(), rerecord ? 1u : 0u);
    allocator.reset();
    EXPECT_TRUE(device->events.empty());
  }
}

TEST_F(AllocatorTest, EmptyCacheWaitsForStreamsBeforeFreeing) {
  void* a = allocate(512, 2);
  void* b = allocate(512, 4);
  device->enqueue_work(2);
  device->enqueue_work(4);
  allocator->record_stream(b, stream(2));
  allocator->free(a);
  allocator->free(b);
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u);
  EXPECT_EQ(device->frees_of_busy_streams, 0);
  EXPECT_EQ(stats().num_sync_all_streams, 1);
}

TEST_F(AllocatorTest, StreamOrderedPluginsGetTheStreamInsteadOfAWait) {
  restart({.extra_capabilities = TB_CAP_STREAM_ALLOC});
  void* a = allocate(512, 2);
  EXPECT_EQ(device->stream_of_segment.begin()->second, 2);
  device->enqueue_work(2);
  allocator->free(a);
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u);
  EXPECT_TRUE(device->busy[2]);
}

TEST_F(AllocatorTest, SynchronousDevicesShareMemoryBetweenStreams) {
  restart({.async = false});
  void* a = allocate(512, 2);
  EXPECT_TRUE(allocator->record_stream(a, stream(4)));
  allocator->free(a);
  EXPECT_EQ(stats().active_bytes[0].current, 0);
  EXPECT_EQ(allocate(512, 6), a);
  allocator->free(a);
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u);
}

// ---- full devices ----

TEST_F(AllocatorTest, AFullDeviceGivesBackTheCacheAndTriesAgain) {
  restart({.memory_bytes = 64 * kMiB});
  void* a = allocate(40 * kMiB, 2);
  allocator->free(a);
  void* b = allocate(50 * kMiB);
  EXPECT_EQ(stats().num_alloc_retries, 1);
  EXPECT_EQ(stats().num_ooms, 0);
  EXPECT_EQ(device->live_bytes(), 50 * kMiB);
  allocator->free(b);
  expect_consistent(*allocator);
}

TEST_F(AllocatorTest, AFullDeviceWaitsForPendingBlocks) {
  restart({.memory_bytes = 64 * kMiB});
  void* a = allocate(40 * kMiB);
  allocator->record_stream(a, stream(2));
  allocator->free(a);
  EXPECT_EQ(allocate(40 * kMiB), a) << "its event was waited for";
  EXPECT_EQ(device->num_frees, 0);
  allocator->free(a);
}

TEST_F(AllocatorTest, ANearlyFullDeviceGetsSegmentsOfTheSizeAsked) {
  restart({.memory_bytes = 16 * kMiB});
  void* a = allocate(3 * kMiB); // would like 20 MiB
  EXPECT_EQ(device->live_bytes(), 3 * kMiB);
  void* b = allocate(512);
  EXPECT_EQ(device->live_bytes(), 5 * kMiB);
  allocator->free(a);
  allocator->free(b);
}

std::string message_of_out_of_memory(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::OutOfMemoryError& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "no OutOfMemoryError";
  return "";
}

TEST_F(AllocatorTest, OutOfMemorySaysWhatIsKnown) {
  restart({.memory_bytes = 64 * kMiB});
  void* a = allocate(30 * kMiB);
  int64_t observed_device = -1;
  std::size_t observed_size = 0;
  allocator->add_out_of_memory_observer([&](int64_t index, std::size_t size, std::size_t, std::size_t) {
    observed_device = index;
    observed_size = size;
  });
  const auto text = message_of_out_of_memory([&] { allocate(40 * kMiB); });
  for (const auto* part :
       {"fake:0 out of memory", "Tried to allocate 40.00 MiB", "total capacity of 64.00 MiB", "34.00 MiB is free",
        "30.00 MiB allocated by PyTorch", "0 bytes reserved by PyTorch but unallocated", "torch.fake.memory_summary()",
        "The device says: bank 3 is full"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
  EXPECT_EQ(observed_device, 0);
  EXPECT_EQ(observed_size, 40 * kMiB);
  EXPECT_EQ(stats().num_ooms, 1);
  allocator->free(a);
  allocator->free(allocate(40 * kMiB));
  EXPECT_EQ(stats().num_ooms, 1);
}

TEST_F(AllocatorTest, MoreThanTheDeviceGivesInOnePieceIsRefusedAtOnce) {
  restart({.granularity_bytes = 2 * kMiB, .max_allocation_bytes = 15 * kMiB});
  allocator->free(allocate(kMiB + 1));
  EXPECT_EQ(device->live_bytes(), 14 * kMiB) << "segments keep to it";
  const int asked = device->num_allocates;
  const auto text = message_of_out_of_memory([&] { allocate(15 * kMiB); });
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "Tried to allocate 15.00 MiB", text);
  EXPECT_EQ(device->num_allocates, asked);
  EXPECT_EQ(device->live_bytes(), 14 * kMiB) << "nothing that is cached was given back";
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "gives at most 14.00 MiB in one piece (max_allocation_bytes)",
                      message_of_out_of_memory([&] { allocate(16 * kMiB); }));
  EXPECT_EQ(stats().num_ooms, 2);
  configure("roundup_power2_divisions:1");
  allocator->free(allocate(9 * kMiB));
  allocator->free(allocate(14 * kMiB));
  expect_consistent(*allocator);
}

TEST_F(AllocatorTest, AbsurdSizesAreOutOfMemory) {
  message_of_out_of_memory([&] { allocate(std::size_t{1} << 50); });
  message_of_out_of_memory([&] { allocate(~std::size_t{0}); });
  EXPECT_EQ(stats().num_ooms, 2);
}

TEST_F(AllocatorTest, TheFractionLimitsWhatIsHeld) {
  restart({.memory_bytes = 100 * kMiB});
  allocator->set_memory_fraction(0.5);
  EXPECT_EQ(allocator->memory_fraction(), 0.5);
  void* a = allocate(30 * kMiB);
  const auto text = message_of_out_of_memory([&] { allocate(30 * kMiB); });
  EXPECT_NE(text.find("limits this process to 50.00 MiB, which this request would exceed"), std::string::npos) << text;
  EXPECT_EQ(device->num_allocates, 1) << "the plugin is not asked";
  allocator->free(a);
  a = allocate(40 * kMiB); // gives back the 30
  allocator->set_memory_fraction(1.0);
  allocator->free(allocate(50 * kMiB));
  EXPECT_THROW(allocator->set_memory_fraction(1.5), c10::ValueError);
  allocator->free(a);
}

TEST_F(AllocatorTest, MemoryInfoFallsBackToWhatIsHeld) {
  for (const bool has_info : {true, false}) {
    restart({.memory_bytes = 64 * kMiB, .has_memory_info = has_info});
    void* a = allocate(30 * kMiB);
    EXPECT_EQ(allocator->memory_info(), (std::pair<std::size_t, std::size_t>{34 * kMiB, 64 * kMiB}));
    allocator->free(a);
  }
}

TEST_F(AllocatorTest, ADriverSaysWhatPropertiesDoNot) {
  restart({.memory_bytes = 100 * kMiB, .says_total = false});
  EXPECT_EQ(allocator->memory_info(), (std::pair<std::size_t, std::size_t>{100 * kMiB, 100 * kMiB}));
  allocator->set_memory_fraction(0.5);
  const auto text = message_of_out_of_memory([&] { allocate(60 * kMiB); });
  EXPECT_NE(text.find("limits this process to 50.00 MiB"), std::string::npos) << text;
}

TEST_F(AllocatorTest, MemoryOfUnknownSize) {
  restart({.memory_bytes = 100 * kMiB, .says_total = false, .has_memory_info = false});
  configure("garbage_collection_threshold:0.5");
  allocator->free(allocate(30 * kMiB));
  allocator->free(allocate(60 * kMiB)); // more than the threshold, if that were half of nothing
  EXPECT_EQ(reserved_bytes(), static_cast<int64_t>(90 * kMiB));
  const auto text = message_of_out_of_memory([&] { allocate(kGiB); });
  EXPECT_EQ(text.find("capacity"), std::string::npos) << text;
  EXPECT_EQ(text.find(" is free"), std::string::npos) << text;
  EXPECT_NE(text.find("The device says: bank 3 is full"), std::string::npos) << text;
  EXPECT_THROW(allocator->memory_info(), c10::NotImplementedError);
  EXPECT_THROW(allocator->set_memory_fraction(0.5), c10::NotImplementedError);
  allocator->set_memory_fraction(1.0);
}

TEST_F(AllocatorTest, OtherFailuresAreNotOutOfMemory) {
  device->fail_at = device->num_calls;
  EXPECT_THROW(allocate(512), c10::AcceleratorError);
  EXPECT_EQ(stats().num_ooms, 0);
  allocator->free(allocate(512));
}

TEST_F(AllocatorTest, ALostDeviceDoesNotBreakFrees) {
  void* a = allocate(512);
  void* b = allocate(512);
  allocator->record_stream(b, stream(2));
  device->fail_at = device->num_calls;
  device->fail_with = TB_STATUS_DEVICE_LOST;
  EXPECT_THROW(allocate(40 * kMiB), c10::AcceleratorError);
  EXPECT_TRUE(allocator->free(a));
  EXPECT_TRUE(allocator->free(b));
  EXPECT_THROW(allocate(512), c10::AcceleratorError) << "even if the cache could serve it";
  allocator.reset();
  EXPECT_EQ(device->calls_after_lost, 0);
}

// ---- settings ----

TEST_F(AllocatorTest, SizesRoundToDivisionsOfAPowerOfTwo) {
  configure("roundup_power2_divisions:4");
  const std::pair<std::size_t, std::size_t> cases[] = {{512, 512},
                                                       {kKiB, kKiB},
                                                       {5 * kKiB, 5 * kKiB},
                                                       {9 * kKiB, 10 * kKiB},
                                                       {1200 * kKiB, 1280 * kKiB},
                                                       {1100 * kMiB, 1280 * kMiB}};
  for (const auto& [request, block] : cases) {
    restart({});
    void* a = allocate(request);
    EXPECT_EQ(static_cast<std::size_t>(allocated_bytes()), block) << request;
    allocator->free(a);
  }
}

TEST_F(AllocatorTest, OversizeBlocksAreNotCut) {
  configure("max_split_size_mb:32");
  void* big = allocate(64 * kMiB);
  EXPECT_EQ(stats().oversize_allocations.current, 1);
  EXPECT_EQ(stats().oversize_segments.current, 1);
  allocator->free(big);
  EXPECT_EQ(stats().oversize_allocations.current, 0);
  void* small = allocate(12 * kMiB);
  EXPECT_NE(small, big);
  void* near = allocate(60 * kMiB);
  EXPECT_EQ(near, big) << "within the tolerance";
  allocator->free(near);
  void* far = allocate(40 * kMiB);
  EXPECT_NE(far, big) << "too much would be wasted";
  allocator->free(small);
  allocator->free(far);
  expect_consistent(*allocator);
}

TEST_F(AllocatorTest, OversizeBlocksMakeRoomForAnotherFirst) {
  configure("max_split_size_mb:32");
  restart({.memory_bytes = 200 * kMiB});
  void* small = allocate(12 * kMiB);
  void* big = allocate(150 * kMiB);
  allocator->free(small);
  allocator->free(big);
  void* other = allocate(100 * kMiB);
  EXPECT_EQ(device->num_frees, 1) << "only the oversize block";
  allocator->free(other);
}

TEST_F(AllocatorTest, GarbageCollectionFreesWhatWasUnusedLongest) {
  configure("garbage_collection_threshold:0.5");
  restart({.memory_bytes = 200 * kMiB});
  void* old = allocate(40 * kMiB);
  void* recent = allocate(40 * kMiB);
  void* other = allocate(12 * kMiB);
  void* held = allocate(30 * kMiB);
  allocator->free(other);
  allocator->free(old);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(allocate(12 * kMiB), other);
    allocator->free(other);
  }
  allocator->free(recent);
  void* next = allocate(60 * kMiB); // 122 MiB are held, 22 over the threshold: one block is enough
  EXPECT_EQ(device->num_frees, 1);
  EXPECT_FALSE(device->live.count(reinterpret_cast<uintptr_t>(old)));
  EXPECT_EQ(stats().num_alloc_retries, 0);
  allocator->free(held);
  allocator->free(next);
}

// ---- private pools ----

constexpr c10::MempoolId_t kPool{0, 77};

TEST_F(AllocatorTest, RoutedRequestsUseAPrivatePoolOnly) {
  void* outside = allocate(512);
  allocator->free(outside);
  allocator->begin_allocate_to_pool(kPool, [](const StreamRef& stream) { return stream.id == 2; }, false);
  EXPECT_EQ(allocator->pool_use_count(kPool), 1);
  void* inside = allocate(512, 2);
  EXPECT_EQ(allocate(512, 0), outside) << "the filter did not accept this stream";
  allocator->end_allocate_to_pool(kPool);
  EXPECT_NE(inside, outside);
  allocator->free(inside);
  void* later = allocate(512, 2);
  EXPECT_NE(later, inside) << "memory of the pool goes only to the pool";
  allocator->begin_allocate_to_pool(kPool, [](const StreamRef&) { return true; }, false);
  EXPECT_EQ(allocate(512, 2), inside);
  allocator->end_allocate_to_pool(kPool);
  for (void* ptr : {outside, inside, later}) {
    allocator->free(ptr);
  }
  allocator->release_pool(kPool);
  allocator->release_pool(kPool);
  EXPECT_THROW(allocator->release_pool(kPool), c10::Error);
  expect_consistent(*allocator);
}

TEST_F(AllocatorTest, AHeldPoolSurvivesEmptyCacheAndAReleasedOneDoesNot) {
  allocator->begin_allocate_to_pool(kPool, [](const StreamRef&) { return true; }, false);
  void* kept = allocate(512);
  void* freed = allocate(30 * kMiB);
  allocator->end_allocate_to_pool(kPool);
  allocator->free(freed);
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 2u);
  allocator->empty_cache(kPool);
  EXPECT_EQ(device->num_live_segments(), 1u) << "its cached segment, asked for by name";
  allocator->release_pool(kPool);
  EXPECT_EQ(allocator->pool_use_count(kPool), 0);
  allocator->free(kept);
  EXPECT_EQ(device->num_live_segments(), 1u);
  allocator->empty_cache();
  EXPECT_EQ(device->num_live_segments(), 0u);
}

TEST_F(AllocatorTest, AFullDeviceLeavesHeldPoolsAlone) {
  restart({.memory_bytes = 64 * kMiB});
  allocator->begin_allocate_to_pool(kPool, [](const StreamRef&) { return true; }, false);
  void* inside = allocate(30 * kMiB);
  allocator->end_allocate_to_pool(kPool);
  allocator->free(inside);
  const auto text = message_of_out_of_memory([&] { allocate(40 * kMiB); });
  EXPECT_NE(text.find("30.00 MiB of all of it in private pools"), std::string::npos) << text;
  allocator->release_pool(kPool);
  allocator->free(allocate(40 * kMiB));
}

TEST_F(AllocatorTest, APoolIsSetToWhatWasInUse) {
  void* outside = allocate(512);
  allocator->begin_allocate_to_pool(kPool, [](const StreamRef&) { return true; }, false);
  void* kept = allocate(512);
  void* small = allocate(1024);
  void* large = allocate(30 * kMiB);
  allocator->free(small);
  const auto before = allocator->checkpoint_pool(kPool);
  ASSERT_EQ(before.uses.size(), 2u);
  const auto in_use = stats();
  void* other = allocate(2048);
  EXPECT_EQ(other, small) << "free memory behind `kept`";
  allocator->free(kept);
  allocator->free(large);
  allocator->record_stream(other, stream(4));
  allocator->restore_pool(before);
  EXPECT_EQ(stats().allocated_bytes[0].current, in_use.allocated_bytes[0].current);
  EXPECT_EQ(stats().active_bytes[0].current, in_use.active_bytes[0].current);
  EXPECT_EQ(stats().requested_bytes[0].current, in_use.requested_bytes[0].current);
  expect_consistent(*allocator);
  EXPECT_FALSE(allocator->free(other)) << "was allocated after that";
  EXPECT_EQ(allocate(2048), other);
  allocator->restore_pool(before);
  allocator->restore_pool(before);
  allocator->end_allocate_to_pool(kPool);
  EXPECT_TRUE(allocator->free(kept));
  EXPECT_TRUE(allocator->free(large));
  EXPECT_TRUE(allocator->free(outside)) << "of no pool";
  EXPECT_EQ(stats().active_bytes[0].current, 0);
  expect_consistent(*allocator);
  allocator->empty_cache(kPool);
  EXPECT_THROW(allocator->restore_pool(before), c10::Error) << "the memory is gone";
  expect_consistent(*allocator);
  allocator->release_pool(kPool);
}

TEST_F(AllocatorTest, APoolIsSetOnlyWhenOtherStreamsAreDone) {
  allocator->begin_allocate_to_pool(kPool, [](const StreamRef&) { return true; }, false);
  void* a = allocate(512);
  const auto before = allocator->checkpoint_pool(kPool);
  allocator->record_stream(a, stream(4));
  device->enqueue_work(4);
  allocator->free(a);
  EXPECT_TRUE(allocator->checkpoint_pool(kPool).uses.empty()) << "nobody's any more";
  bool waited = false;
  device->on_slot = [&](const std::string& slot) { waited = waited || slot == "event_synchronize"; };
  allocator->restore_pool(before);
  device->on_slot = nullptr;
  EXPECT_TRUE(waited);
  allocator->end_allocate_to_pool(kPool);
  EXPECT_TRUE(allocator->free(a));
  allocator->release_pool(kPool);
  expect_consistent(*allocator);
}

TEST_F(AllocatorTest, DuringACaptureNothingIsRecordedOrWaitedFor) {
  void* a = allocate(512, 2);
  void* big = allocate(30 * kMiB);
  allocator->free(big);
  allocator->record_stream(a, stream(4));
  allocator->begin_allocate_to_pool(kPool, [](const StreamRef& stream) { return stream.id == 2; }, true);
  device->on_slot = [](const std::string& slot) {
    EXPECT_TRUE(slot == "memory_allocate" || slot == "memory_info") << slot;
  };
  allocator->free(a);
  void* captured = allocate(512, 2);
  EXPECT_EQ(stats().active_bytes[0].current, 1024) << "the use by stream 4 is not known yet";
  device->options.memory_bytes = device->live_bytes();
  message_of_out_of_memory([&] { allocate(64 * kMiB, 2); });
  EXPECT_THROW(allocator->empty_cache(), c10::Error);
  device->on_slot = nullptr;
  allocator->end_allocate_to_pool(kPool);
  allocator->free(captured);
  device->complete_all();
  allocator->empty_cache();
  device->complete_all();
  allocator->empty_cache();
  EXPECT_EQ(stats().active_bytes[0].current, 0);
  EXPECT_EQ(device->num_live_segments(), 1u) << "the captured pool's";
  allocator->release_pool(kPool);
}

TEST_F(AllocatorTest, PoolIdsAreUnique) {
  std::set<c10::MempoolId_t> ids;
  for (int i = 0; i < 10; ++i) {
    ids.insert(generate_mempool_id(true));
    ids.insert(generate_mempool_id(false));
  }
  EXPECT_EQ(ids.size(), 20u);
  EXPECT_FALSE(ids.count({0, 0}));
}

// ---- history ----

struct Stack : c10::GatheredContext {};
int num_stacks = 0;
ContextPtr gather() {
  ++num_stacks;
  return std::make_shared<Stack>();
}

std::vector<std::string> actions(CachingAllocator& allocator) {
  std::vector<std::string> names;
  for (const auto& entry : allocator.snapshot(std::nullopt, true).trace) {
    names.emplace_back(trace_action_name(entry.action));
  }
  return names;
}

TEST_F(AllocatorTest, HistoryTellsWhatHappened) {
  allocator->record_history(
      {.enabled = true, .create_context = gather, .when = RecordContext::kAlloc, .max_entries = 100});
  void* a = allocate(512);
  allocator->record_stream(a, stream(2));
  allocator->free(a);
  device->complete_all();
  allocator->empty_cache();
  EXPECT_EQ(actions(*allocator), (std::vector<std::string>{"segment_alloc", "alloc", "free_requested", "free_completed",
                                                           "segment_free", "snapshot"}));
  const auto trace = allocator->snapshot(std::nullopt, true).trace;
  EXPECT_EQ(trace[1].address, reinterpret_cast<uintptr_t>(a));
  EXPECT_EQ(trace[1].size, 512u);
  EXPECT_NE(trace[1].context, nullptr);
  EXPECT_GT(trace[1].time_us, 1'500'000'000'000'000);
}

TEST_F(AllocatorTest, HistoryKeepsTheNewestEntries) {
  allocator->record_history({.enabled = true, .max_entries = 3, .skip = {parse_trace_action("free_completed")}});
  for (int i = 0; i < 5; ++i) {
    allocator->free(allocate(512));
  }
  EXPECT_EQ(actions(*allocator), (std::vector<std::string>{"alloc", "free_requested", "snapshot"}));
  allocator->record_history({});
  EXPECT_FALSE(allocator->history_enabled());
  EXPECT_TRUE(actions(*allocator).empty());
  EXPECT_THROW(parse_trace_action("allocate"), c10::ValueError);
}

TEST_F(AllocatorTest, StacksAreGatheredAsAsked) {
  for (const auto& [when, stacks] :
       {std::pair{RecordContext::kNever, 0}, {RecordContext::kState, 1}, {RecordContext::kAll, 2}}) {
    num_stacks = 0;
    allocator->record_history({.enabled = true, .create_context = gather, .when = when, .max_entries = 10});
    void* a = allocate(512);
    EXPECT_EQ(allocator->snapshot(std::nullopt, false).segments.at(0).blocks.at(0).context != nullptr, stacks > 0);
    allocator->free(a);
    EXPECT_EQ(num_stacks, stacks);
  }
}

TEST_F(AllocatorTest, SnapshotShowsSegmentsAndBlocks) {
  void* a = allocate(1000, 2);
  void* b = allocate(512, 2);
  allocator->record_stream(b, stream(4));
  allocator->free(b);
  const auto segments = allocator->snapshot(std::nullopt, true).segments;
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].address, reinterpret_cast<uintptr_t>(a));
  EXPECT_EQ(segments[0].stream, 2);
  EXPECT_TRUE(segments[0].is_small);
  EXPECT_EQ(segments[0].allocated_size, 1024u);
  EXPECT_EQ(segments[0].active_size, 1536u);
  ASSERT_EQ(segments[0].blocks.size(), 3u);
  EXPECT_EQ(segments[0].blocks[0].requested_size, 1000u);
  EXPECT_EQ(segments[0].blocks[1].state, Block::State::kPending);
  EXPECT_EQ(segments[0].blocks[2].state, Block::State::kFree);
  EXPECT_TRUE(allocator->snapshot(kPool, true).segments.empty());
  allocator->free(a);
}

TEST_F(AllocatorTest, StatisticsReset) {
  void* a = allocate(2048);
  allocator->free(allocate(4096));
  EXPECT_EQ(stats().allocated_bytes[0].peak, 6144);
  EXPECT_EQ(stats().allocated_bytes[1].allocated, 6144);
  EXPECT_EQ(stats().allocated_bytes[1].freed, 4096);
  allocator->reset_peak_statistics();
  allocator->reset_accumulated_statistics();
  EXPECT_EQ(stats().allocated_bytes[0].peak, 2048);
  EXPECT_EQ(stats().allocated_bytes[0].allocated, 0);
  EXPECT_EQ(stats().allocated_bytes[0].freed, 0);
  EXPECT_EQ(stats().num_device_alloc, 0);
  allocator->free(a);
  EXPECT_EQ(stats().allocated_bytes[0].freed, 2048);
}

} // namespace
} // namespace torch_backend::test
