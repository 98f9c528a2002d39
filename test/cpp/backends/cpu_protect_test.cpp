// Protected mode of the xcpu device: device memory faults unless it is mapped.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "support/child_process.h"
#include "support/xcpu_test.h"

namespace torch_backend::testing {
namespace {

bool can_read(const unsigned char* ptr) {
  return run_in_child([ptr] {
           const volatile unsigned char* p = ptr;
           return static_cast<void>(*p), 0;
         }) != kSegmentationFault;
}

bool can_write(unsigned char* ptr) {
  return run_in_child([ptr] {
           volatile unsigned char* p = ptr;
           *p = 1;
           return 0;
         }) != kSegmentationFault;
}

class XcpuProtectTest : public XcpuTest {
 protected:
  void load_protected(option_map more = {}) {
    more["protect"] = "1";
    load(more);
  }
  void map(unsigned char* ptr, uint64_t size, uint32_t access) {
    EXPECT_OK(core->memory_map(0, ptr, size, access));
  }
  void unmap(unsigned char* ptr, uint64_t size, uint32_t access) {
    EXPECT_OK(core->memory_unmap(0, ptr, size, access));
  }
};

constexpr uint32_t kReadWrite = TB_MAP_READ | TB_MAP_WRITE;

TEST_F(XcpuProtectTest, StrayAccessesFault) {
  load_protected();
  for (uint64_t size : {uint64_t{1}, uint64_t{100000}, uint64_t{5} << 20}) {
    unsigned char* ptr = allocate(0, size);
    EXPECT_FALSE(can_read(ptr));
    EXPECT_FALSE(can_read(ptr + size - 1));
    EXPECT_FALSE(can_write(ptr));
    release(0, ptr, size);
  }
}

TEST_F(XcpuProtectTest, NeighboursAreProtectedOneByOne) {
  load_protected();
  unsigned char *a = allocate(0, 64), *b = allocate(0, 64);
  map(a, 64, kReadWrite);
  EXPECT_TRUE(can_write(a));
  EXPECT_FALSE(can_read(b));
  unmap(a, 64, kReadWrite);
}

TEST_F(XcpuProtectTest, HostMemoryIsNotProtected) {
  load_protected();
  unsigned char* ptr = allocate(0, 4096, TB_MEMORY_HOST);
  EXPECT_TRUE(can_write(ptr));
  release(0, ptr, 4096, TB_MEMORY_HOST);
}

TEST_F(XcpuProtectTest, DeviceMemoryIsNotTheHostsSideOfACopy) {
  load_protected();
  unsigned char *a = allocate(0, 64), *b = allocate(1, 64), *host = allocate(0, 64, TB_MEMORY_HOST);
  for (unsigned char* device : {a + 8, b + 8}) {
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_copy(0, a, -1, device, 8, TB_COPY_HOST_TO_DEVICE, nullptr));
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_copy(-1, device, 0, a, 8, TB_COPY_DEVICE_TO_HOST, nullptr));
  }
  EXPECT_OK(core->memory_copy(0, a, -1, host, 8, TB_COPY_HOST_TO_DEVICE, nullptr));
  EXPECT_OK(core->memory_copy(-1, host, 0, a, 8, TB_COPY_DEVICE_TO_HOST, nullptr));
  release(0, host, 64, TB_MEMORY_HOST);
}

TEST_F(XcpuProtectTest, MemoryIsProtectedAgainAfterCopiesAndFills) {
  load_protected();
  unsigned char *a = allocate(0, 64), *b = allocate(1, 64);
  upload(0, a, pattern(64, 1));
  EXPECT_OK(core->memory_copy(1, b, 0, a, 64, TB_COPY_PEER, nullptr));
  EXPECT_OK(core->memory_fill(0, a, "x", 1, 64, nullptr));
  EXPECT_FALSE(can_read(a));
  EXPECT_FALSE(can_read(b));
  EXPECT_EQ(download(1, b, 64), pattern(64, 1));
  EXPECT_EQ(download(0, a, 64), bytes(64, 'x'));
}

TEST_F(XcpuProtectTest, AMappingGivesTheAccessThatWasAskedFor) {
  load_protected();
  unsigned char* ptr = allocate(0, 8192);
  map(ptr, 8192, TB_MAP_READ);
  EXPECT_TRUE(can_read(ptr + 8191));
  EXPECT_FALSE(can_write(ptr));
  unmap(ptr, 8192, TB_MAP_READ);
  EXPECT_FALSE(can_read(ptr));

  map(ptr, 8192, kReadWrite);
  ptr[0] = 7;
  unmap(ptr, 8192, kReadWrite);
  EXPECT_FALSE(can_write(ptr));
  EXPECT_EQ(download(0, ptr, 1), bytes{7});
}

TEST_F(XcpuProtectTest, MappingsNestAndOverlap) {
  load_protected();
  unsigned char* ptr = allocate(0, 100);
  map(ptr, 100, TB_MAP_READ);
  map(ptr + 10, 50, kReadWrite);
  upload(0, ptr, pattern(100, 2)); // its own access ends, that of the mappings does not
  EXPECT_TRUE(can_write(ptr));
  unmap(ptr + 10, 50, kReadWrite);
  EXPECT_TRUE(can_read(ptr));
  EXPECT_FALSE(can_write(ptr));
  unmap(ptr, 100, TB_MAP_READ);
  EXPECT_FALSE(can_read(ptr));
}

TEST_F(XcpuProtectTest, MisuseIsRefused) {
  load_protected();
  unsigned char* ptr = allocate(0, 100);
  int local = 0;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_map(0, &local, 1, TB_MAP_READ));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_map(1, ptr, 100, TB_MAP_READ));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_map(0, ptr + 1, 100, TB_MAP_READ));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_map(0, ptr, 100, 0));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_unmap(0, ptr, 100, TB_MAP_READ));
  map(ptr, 100, TB_MAP_READ);
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_unmap(0, ptr, 100, TB_MAP_WRITE));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_free(0, TB_MEMORY_DEVICE, ptr, 100, nullptr));
  EXPECT_NE(take_failure_text().find("still mapped"), std::string::npos);
  unmap(ptr, 100, TB_MAP_READ);
  release(0, ptr, 100);
}

TEST_F(XcpuProtectTest, CopiesBeyondAnAllocationAreRefused) {
  load_protected();
  unsigned char* ptr = allocate(0, 100);
  const bytes data(101);
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT,
                core->memory_copy(0, ptr, -1, data.data(), 101, TB_COPY_HOST_TO_DEVICE, nullptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT,
                core->memory_copy(1, ptr, -1, data.data(), 100, TB_COPY_HOST_TO_DEVICE, nullptr));
  release(0, ptr, 100);
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT,
                core->memory_copy(0, ptr, -1, data.data(), 100, TB_COPY_HOST_TO_DEVICE, nullptr));
}

TEST_F(XcpuProtectTest, ThreadsMapAndCopyTheSameMemory) {
  load_protected();
  constexpr size_t kSlice = 1000;
  unsigned char* ptr = allocate(0, 6 * kSlice);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t)
    threads.emplace_back([this, ptr, t] {
      unsigned char* mine = ptr + t * kSlice;
      for (unsigned i = 0; i < 200; ++i) {
        const bytes data = pattern(kSlice, t * 1000 + i);
        upload(0, mine, data);
        map(mine, kSlice, kReadWrite);
        ASSERT_EQ(bytes(mine, mine + kSlice), data);
        mine[0] = static_cast<unsigned char>(i);
        unmap(mine, kSlice, kReadWrite);
        ASSERT_EQ(download(0, mine, 1)[0], static_cast<unsigned char>(i));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(can_read(ptr));
  release(0, ptr, 6 * kSlice);
}

TEST_F(XcpuProtectTest, AsynchronousWorkHasAccessWhileItRuns) {
  load_protected({{"async", "1"}});
  unsigned char* ptr = allocate(0, 64);
  gate g;
  g.enqueue(core, 0, nullptr);
  EXPECT_OK(core->memory_fill(0, ptr, "y", 1, 64, nullptr));
  EXPECT_FALSE(can_read(ptr));
  g.open();
  EXPECT_OK(core->stream_synchronize(0, nullptr));
  EXPECT_FALSE(can_read(ptr));
  map(ptr, 64, TB_MAP_READ);
  EXPECT_EQ(bytes(ptr, ptr + 64), bytes(64, 'y'));
  unmap(ptr, 64, TB_MAP_READ);
}

TEST_F(XcpuProtectTest, MemoryFreedUnderPendingWorkIsReported) {
  load_protected({{"async", "1"}});
  unsigned char* ptr = allocate(0, 64);
  gate g;
  g.enqueue(core, 0, nullptr);
  EXPECT_OK(core->memory_fill(0, ptr, "y", 1, 64, nullptr));
  release(0, ptr, 64);
  g.open();
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->stream_synchronize(0, nullptr));
}

} // namespace
} // namespace torch_backend::testing
