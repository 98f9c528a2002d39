// Memory of the xcpu device, which is the same in every mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/xcpu_test.h"

namespace torch_backend::testing {
namespace {

struct mode {
  const char* name;
  option_map options;
};

void PrintTo(const mode& m, std::ostream* out) {
  *out << m.name;
}

const mode kModes[] = {
    {"fast", {}},
    {"async", {{"async", "1"}}},
    {"protect", {{"protect", "1"}}},
    {"async_protect", {{"async", "1"}, {"protect", "1"}}},
    {"ipc", {{"ipc", "1"}}},
    {"ipc_protect", {{"ipc", "1"}, {"protect", "1"}}},
};

class XcpuMemoryTest : public XcpuTest, public ::testing::WithParamInterface<mode> {
 protected:
  void load_with(const option_map& more) {
    option_map options = GetParam().options;
    options.insert(more.begin(), more.end());
    load(options);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, XcpuMemoryTest, ::testing::ValuesIn(kModes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(XcpuMemoryTest, PropertiesAndSlotsFollowTheMode) {
  load_with({});
  tb_device_properties properties = {};
  properties.struct_size = sizeof properties;
  ASSERT_OK(core->device_properties(1, &properties));
  const bool async = GetParam().options.count("async"), protect = GetParam().options.count("protect");
  const bool ipc = GetParam().options.count("ipc");
  const uint64_t async_capabilities = TB_CAP_ASYNC | TB_CAP_EVENT_TIMING | TB_CAP_EVENT_RERECORD | TB_CAP_GRAPH;
  EXPECT_EQ(properties.capabilities, TB_CAP_HOST_ACCESS | TB_CAP_PAGEABLE_ACCESS | TB_CAP_PEER | TB_CAP_VIRTUAL_MEMORY |
                                         (protect ? 0 : TB_CAP_HOST_COHERENT) | (ipc ? TB_CAP_IPC : 0) |
                                         (async ? async_capabilities : 0));
  EXPECT_EQ(core->ipc_export != nullptr, ipc);
  EXPECT_EQ(core->memory_map != nullptr, protect);
  EXPECT_EQ(core->memory_unmap != nullptr, protect);
  for (bool offered : {core->stream_create != nullptr, core->stream_destroy != nullptr,
                       core->stream_synchronize != nullptr, core->stream_wait_event != nullptr,
                       core->event_create != nullptr, core->event_destroy != nullptr, core->event_record != nullptr,
                       core->event_query != nullptr, core->event_elapsed != nullptr, core->stream_query != nullptr})
    EXPECT_EQ(offered, async);
  EXPECT_STREQ(properties.name, "Virtual CPU accelerator");
  EXPECT_STREQ(properties.arch, "host");
  EXPECT_EQ(properties.warp_size, 1);
  EXPECT_EQ(properties.multiprocessor_count, static_cast<int32_t>(std::thread::hardware_concurrency()));
  EXPECT_GT(properties.total_memory_bytes, uint64_t{1} << 20);
}

TEST_P(XcpuMemoryTest, RefusesCopiesItCannotMake) {
  load_with({});
  unsigned char* ptr = allocate(0, 64);
  unsigned char host[64];
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_copy(2, ptr, -1, host, 64, TB_COPY_HOST_TO_DEVICE, nullptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_copy(-1, host, -1, ptr, 64, TB_COPY_DEVICE_TO_HOST, nullptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_copy(1, ptr, 0, ptr, 64, TB_COPY_DEVICE_TO_DEVICE, nullptr));
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, core->memory_copy(0, ptr, 0, ptr, 64, 9, nullptr));
  release(0, ptr, 64);
}

TEST_P(XcpuMemoryTest, RefusesBadFills) {
  load_with({});
  unsigned char* ptr = allocate(0, 96);
  const bytes value(32, 1);
  for (uint32_t width : {0u, 3u, 5u, 24u, 32u})
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_fill(0, ptr, value.data(), width, 96, nullptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_fill(0, ptr, value.data(), 4, 95, nullptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_fill(0, ptr, value.data(), 4, 0, nullptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_fill(2, ptr, value.data(), 4, 96, nullptr));
  release(0, ptr, 96);
}

TEST_P(XcpuMemoryTest, LimitIsExactAndRecovers) {
  load_with({{"memory", "1MiB"}});
  const uint64_t limit = 1 << 20;
  EXPECT_EQ(free_bytes(0), limit);
  void* large = allocate(0, limit - 1);
  void* last = allocate(0, 1);
  EXPECT_EQ(free_bytes(0), 0u);
  EXPECT_EQ(free_bytes(1), limit);

  void* none = nullptr;
  EXPECT_STATUS(TB_STATUS_OUT_OF_MEMORY, core->memory_allocate(0, TB_MEMORY_DEVICE, 77, nullptr, &none));
  const std::string text = take_failure_text();
  for (const char* part : {"77", "1048576", "xcpu.memory"}) EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(none, nullptr);

  release(0, large, limit - 1);
  EXPECT_STATUS(TB_STATUS_OUT_OF_MEMORY, core->memory_allocate(0, TB_MEMORY_DEVICE, limit, nullptr, &none));
  release(0, last, 1);
  release(0, allocate(0, limit), limit);
}

TEST_P(XcpuMemoryTest, HugeSizesAreOutOfMemory) {
  load_with({});
  void* some = allocate(0, 100);
  void* none = nullptr;
  for (uint32_t kind : {TB_MEMORY_DEVICE, TB_MEMORY_HOST})
    for (uint64_t size : {uint64_t{1} << 61, uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()})
      EXPECT_STATUS(TB_STATUS_OUT_OF_MEMORY, core->memory_allocate(0, kind, size, nullptr, &none));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_allocate(0, TB_MEMORY_DEVICE, 0, nullptr, &none));
  release(0, some, 100);
}

TEST_P(XcpuMemoryTest, HostMemoryIsOrdinaryAndNotCounted) {
  load_with({{"memory", "64KiB"}});
  unsigned char* host = allocate(1, 1 << 20, TB_MEMORY_HOST);
  const uint64_t free = free_bytes(1);
  EXPECT_EQ(free, 64u << 10);
  host[0] = 1;
  host[(1 << 20) - 1] = 2;
  unsigned char* ptr = allocate(1, 100);
  EXPECT_OK(core->memory_copy(1, ptr, -1, host, 100, TB_COPY_HOST_TO_DEVICE, nullptr));
  synchronize(1);
  EXPECT_EQ(download(1, ptr, 1), bytes{1});
  release(1, ptr, 100);
  release(1, host, 1 << 20, TB_MEMORY_HOST);
}

TEST_P(XcpuMemoryTest, FreesOnlyWhatItAllocated) {
  load_with({});
  const uint64_t before = free_bytes(0);
  unsigned char* ptr = allocate(0, 100);
  const auto refused = [&](int32_t device, uint32_t kind, void* p, uint64_t size) {
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_free(device, kind, p, size, nullptr));
    EXPECT_FALSE(take_failure_text().empty());
  };
  int local = 0;
  refused(1, TB_MEMORY_DEVICE, ptr, 100);
  refused(0, TB_MEMORY_HOST, ptr, 100);
  refused(0, TB_MEMORY_DEVICE, ptr, 99);
  refused(0, TB_MEMORY_DEVICE, ptr + 1, 99);
  refused(0, TB_MEMORY_DEVICE, &local, 100);
  refused(0, TB_MEMORY_DEVICE, nullptr, 100);
  EXPECT_EQ(free_bytes(0), before - 100);
  release(0, ptr, 100);
  refused(0, TB_MEMORY_DEVICE, ptr, 100);
  EXPECT_EQ(free_bytes(0), before);
}

TEST_P(XcpuMemoryTest, QueriesAnyAddress) {
  load_with({});
  unsigned char* device = allocate(1, 1000);
  unsigned char* host = allocate(0, 500, TB_MEMORY_HOST);
  const auto query = [&](const void* ptr) {
    tb_pointer_info info = {};
    info.struct_size = sizeof info;
    EXPECT_OK(core->memory_query(ptr, &info));
    return info;
  };
  for (size_t offset : {0, 1, 999}) {
    const tb_pointer_info info = query(device + offset);
    EXPECT_EQ(info.kind, TB_MEMORY_DEVICE);
    EXPECT_EQ(info.device, 1);
    EXPECT_EQ(info.base, device);
    EXPECT_EQ(info.size_bytes, 1000u);
  }
  EXPECT_EQ(query(host + 250).kind, TB_MEMORY_HOST);
  EXPECT_EQ(query(host + 250).device, 0);
  int local = 0;
  EXPECT_EQ(query(&local).kind, TB_MEMORY_UNKNOWN);
  EXPECT_EQ(query(nullptr).kind, TB_MEMORY_UNKNOWN);
  EXPECT_NE(query(device + 1000).base, device);
  release(1, device, 1000);
  EXPECT_EQ(query(device).kind, TB_MEMORY_UNKNOWN);
  release(0, host, 500, TB_MEMORY_HOST);
}

TEST_P(XcpuMemoryTest, PeersHaveAccess) {
  load_with({{"devices", "3"}});
  int32_t access = 0;
  EXPECT_OK(core->peer_can_access(0, 2, &access));
  EXPECT_EQ(access, 1);
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->peer_can_access(0, 3, &access));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->peer_can_access(-1, 0, &access));
}

TEST_P(XcpuMemoryTest, ManyOperationsLeakNothing) {
  load_with({});
  const uint64_t before = free_bytes(0);
  std::mt19937 random(1);
  struct block {
    void* ptr;
    uint64_t size;
  };
  std::vector<block> blocks;
  uint64_t held = 0;
  for (int i = 0; i < 100000; ++i) {
    if (blocks.size() < 50 || (random() % 2 && blocks.size() < 200)) {
      const uint64_t size = 1 + random() % (random() % 1000 == 0 ? 3 << 20 : 4096);
      blocks.push_back({allocate(0, size), size});
      held += size;
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      release(0, blocks.back().ptr, blocks.back().size);
      held -= blocks.back().size;
      blocks.pop_back();
    }
    if (i % 1000 == 0) {
      ASSERT_EQ(free_bytes(0), before - held);
    }
  }
  for (const block& b : blocks) release(0, b.ptr, b.size);
  EXPECT_EQ(free_bytes(0), before);
}

TEST_P(XcpuMemoryTest, ThreadsWorkSideBySide) {
  load_with({});
  const uint64_t before = free_bytes(0) + free_bytes(1);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t)
    threads.emplace_back([this, t] {
      const int32_t device = static_cast<int32_t>(t % 2);
      for (unsigned i = 0; i < 200; ++i) {
        const bytes data = pattern(1 + (i * 37 + t) % 5000, t * 1000 + i);
        unsigned char* ptr = allocate(device, data.size() + 3);
        upload(device, ptr + 3, data);
        ASSERT_EQ(download(device, ptr + 3, data.size()), data);
        release(device, ptr, data.size() + 3);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(free_bytes(0) + free_bytes(1), before);
}

TEST_P(XcpuMemoryTest, ThreadsCannotExceedTheLimitTogether) {
  load_with({{"memory", "100KiB"}});
  std::vector<std::thread> threads;
  std::vector<std::vector<void*>> taken(4);
  for (std::vector<void*>& mine : taken)
    threads.emplace_back([&] {
      void* ptr = nullptr;
      while (core->memory_allocate(0, TB_MEMORY_DEVICE, 1000, nullptr, &ptr) == TB_STATUS_OK) mine.push_back(ptr);
    });
  for (std::thread& thread : threads) thread.join();
  size_t total = 0;
  for (const std::vector<void*>& mine : taken) {
    total += mine.size();
    for (void* ptr : mine) release(0, ptr, 1000);
  }
  EXPECT_EQ(total, 102u);
  EXPECT_EQ(free_bytes(0), 102400u);
}

} // namespace
} // namespace torch_backend::testing
