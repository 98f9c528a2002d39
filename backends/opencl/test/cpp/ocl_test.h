// What the tests of the ocl device share: an instance in each memory mode, on the first device. Skipped where OpenCL has no
// device.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/testing/plugin_instance.h"

namespace torch_backend::testing {

class OclTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    set_options({{"ocl.memory", GetParam()}});
    plugin = load_plugin(TB_OCL_PLUGIN);
    if (!plugin) GTEST_SKIP() << take_failure_text();
    core = plugin->core;
    int32_t count = 0;
    if (core->device_count(&count) != TB_STATUS_OK) GTEST_SKIP() << take_failure_text();
    const tb_status status = core->initialize();
    if (status == TB_STATUS_UNSUPPORTED) GTEST_SKIP() << take_failure_text(); // a driver without this mode
    ASSERT_OK(status);
    kernels = static_cast<const tb_kernel_table*>(plugin->table("kernels.1"));
    ASSERT_NE(kernels, nullptr);
  }

  template <typename T>
  T* allocate(size_t count) {
    void* ptr = nullptr;
    EXPECT_OK(core->memory_allocate(0, TB_MEMORY_DEVICE, count * sizeof(T), nullptr, &ptr));
    return static_cast<T*>(ptr);
  }
  template <typename T>
  void release(T* ptr, size_t count) {
    EXPECT_OK(core->memory_free(0, TB_MEMORY_DEVICE, ptr, count * sizeof(T), nullptr));
  }

  // Complete when they return.
  template <typename T>
  void upload(T* dst, const std::vector<T>& values) {
    EXPECT_OK(core->memory_copy(0, dst, -1, values.data(), values.size() * sizeof(T), TB_COPY_HOST_TO_DEVICE, nullptr));
    EXPECT_OK(core->stream_synchronize(0, nullptr));
  }
  template <typename T>
  std::vector<T> download(const T* src, size_t count) {
    std::vector<T> values(count);
    EXPECT_OK(core->memory_copy(-1, values.data(), 0, src, count * sizeof(T), TB_COPY_DEVICE_TO_HOST, nullptr));
    EXPECT_OK(core->stream_synchronize(0, nullptr));
    return values;
  }

  const tb_plugin* plugin = nullptr;
  const tb_core_table* core = nullptr;
  const tb_kernel_table* kernels = nullptr;
};

#define INSTANTIATE_OCL_TEST(suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(Memory, suite, ::testing::Values("buffer", "svm", "auto"), \
                           [](const auto& info) { return std::string(info.param); })

} // namespace torch_backend::testing
