// Memory of the xcpu device that processes share, as far as one process can tell; the conformance kit has two.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "support/xcpu_test.h"

namespace torch_backend::testing {
namespace {

class XcpuIpcTest : public XcpuTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    load({{"ipc", "1"}, {"protect", GetParam() ? "1" : "0"}});
  }
  tb_ipc_handle exported(void* ptr) {
    tb_ipc_handle handle{};
    EXPECT_OK(core->ipc_export(0, ptr, &handle));
    return handle;
  }
  unsigned char* import(const tb_ipc_handle& handle) {
    void* ptr = nullptr;
    EXPECT_OK(core->ipc_import(0, &handle, &ptr));
    return static_cast<unsigned char*>(ptr);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, XcpuIpcTest, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "protect" : "fast"); });

TEST_P(XcpuIpcTest, AnImportIsTheSameMemoryAtAnotherAddress) {
  for (size_t size : {size_t{1}, size_t{4097}, size_t{5} << 20}) {
    unsigned char* ptr = allocate(0, size);
    const bytes first = pattern(size, 1), second = pattern(size, 2);
    upload(0, ptr, first);
    unsigned char* other = import(exported(ptr));
    EXPECT_NE(other, ptr);
    EXPECT_TRUE(download(0, other, size) == first);
    upload(0, other, second);
    EXPECT_TRUE(download(0, ptr, size) == second);
    EXPECT_OK(core->ipc_close(0, other));
    EXPECT_TRUE(download(0, ptr, size) == second);
    release(0, ptr, size);
  }
}

TEST_P(XcpuIpcTest, ImportsAreNotCountedAndAreKnown) {
  unsigned char* ptr = allocate(0, 10000);
  const uint64_t free_before = free_bytes(0);
  unsigned char* other = import(exported(ptr));
  EXPECT_EQ(free_bytes(0), free_before);
  tb_pointer_info info = {};
  info.struct_size = sizeof info;
  EXPECT_OK(core->memory_query(other + 5000, &info));
  EXPECT_EQ(info.kind, TB_MEMORY_DEVICE);
  EXPECT_EQ(info.device, 0);
  EXPECT_EQ(info.base, other);
  EXPECT_EQ(info.size_bytes, 10000u);
  EXPECT_OK(core->ipc_close(0, other));
  release(0, ptr, 10000);
}

TEST_P(XcpuIpcTest, WhatIsNotImportedIsNotClosedAndTheOtherWayAround) {
  unsigned char* ptr = allocate(0, 64);
  unsigned char* other = import(exported(ptr));
  tb_ipc_handle handle{};
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_close(0, ptr));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_close(1, other));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_free(0, TB_MEMORY_DEVICE, other, 64, nullptr));
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, core->ipc_export(0, other, &handle));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_export(0, ptr + 1, &handle));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_export(1, ptr, &handle));
  EXPECT_OK(core->ipc_close(0, other));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_close(0, other));
  release(0, ptr, 64);
}

TEST_P(XcpuIpcTest, WhatIsGoneIsRefused) {
  unsigned char* ptr = allocate(0, 10000);
  const tb_ipc_handle handle = exported(ptr);
  unsigned char* other = import(handle);
  release(0, ptr, 10000);
  void* none = nullptr;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_import(0, &handle, &none));
  // New memory in its place is not what the handle means.
  unsigned char* next = allocate(0, 10000);
  exported(next);
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_import(0, &handle, &none));
  EXPECT_EQ(none, nullptr);
  EXPECT_TRUE(download(0, other, 10000) == bytes(10000, 0));
  EXPECT_OK(core->ipc_close(0, other));
  release(0, next, 10000);
}

TEST_P(XcpuIpcTest, HandlesOfOthersAreRefused) {
  unsigned char* ptr = allocate(0, 64);
  const tb_ipc_handle handle = exported(ptr);
  void* none = nullptr;
  const tb_ipc_handle zero{};
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_import(0, &zero, &none));
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->ipc_import(1, &handle, &none));
  for (int32_t pid : {1, 0x7fffffff}) { // a process that is another one now, and none
    tb_ipc_handle stale = handle;
    std::memcpy(stale.bytes + 4, &pid, sizeof pid);
    EXPECT_NE(core->ipc_import(0, &stale, &none), TB_STATUS_OK);
  }
  EXPECT_EQ(none, nullptr);
  release(0, ptr, 64);
}

} // namespace
} // namespace torch_backend::testing
