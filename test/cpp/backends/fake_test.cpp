// The fake device: the five required functions, as its documentation promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/testing/plugin_instance.h"

namespace torch_backend::testing {
namespace {

class FakeTest : public ::testing::Test {
 protected:
  const tb_core_table* load(const option_map& options = {}) {
    set_options(options);
    const tb_plugin* plugin = load_plugin(TB_FAKE_PLUGIN);
    return plugin ? plugin->core : nullptr;
  }
};

TEST_F(FakeTest, DescribesItself) {
  set_options({});
  const tb_plugin* plugin = load_plugin(TB_FAKE_PLUGIN);
  ASSERT_NE(plugin, nullptr);
  EXPECT_EQ(plugin->struct_size, sizeof(tb_plugin));
  EXPECT_EQ(plugin->abi_major, TB_ABI_MAJOR);
  EXPECT_STREQ(plugin->name, "fake");
  EXPECT_EQ(plugin->table, nullptr);
}

TEST_F(FakeTest, OffersOnlyTheRequiredSlots) {
  const tb_core_table* core = load();
  ASSERT_NE(core, nullptr);
  EXPECT_TRUE(core->device_count && core->device_properties && core->memory_allocate && core->memory_free &&
              core->memory_copy);
  const auto* begin = reinterpret_cast<const unsigned char*>(core) + offsetof(tb_core_table, stream_create);
  const auto* end = reinterpret_cast<const unsigned char*>(core) + sizeof(tb_core_table);
  EXPECT_TRUE(std::all_of(begin, end, [](unsigned char byte) { return byte == 0; }));
}

TEST_F(FakeTest, HasNoCapabilities) {
  const tb_core_table* core = load();
  tb_device_properties properties = {};
  properties.struct_size = sizeof properties;
  ASSERT_OK(core->device_properties(0, &properties));
  EXPECT_EQ(properties.capabilities, 0u);
  EXPECT_EQ(properties.allocation_alignment_bytes, 64u);
  EXPECT_STREQ(properties.name, "Fake device");
}

TEST_F(FakeTest, NumberOfDevicesIsAnOption) {
  int32_t count = 0;
  ASSERT_OK(load()->device_count(&count));
  EXPECT_EQ(count, 1);
  ASSERT_OK(load({{"fake.devices", "64"}})->device_count(&count));
  EXPECT_EQ(count, 64);
  ASSERT_OK(load({{"fake.devices", ""}})->device_count(&count));
  EXPECT_EQ(count, 1);
}

TEST_F(FakeTest, RefusesBadNumbersOfDevices) {
  for (const char* bad : {"0", "65", "-1", "two", "2x", "99999999999999999999"}) {
    EXPECT_EQ(load({{"fake.devices", bad}}), nullptr) << bad;
    const std::string text = take_failure_text();
    EXPECT_NE(text.find(bad), std::string::npos) << text;
    EXPECT_NE(text.find("1 to 64"), std::string::npos) << text;
  }
}

TEST_F(FakeTest, SaysWhatItHasNot) {
  const tb_core_table* core = load();
  void* ptr = &ptr;
  void* const untouched = ptr;
  for (uint32_t kind : {TB_MEMORY_HOST, TB_MEMORY_SHARED, 77u})
    EXPECT_STATUS(TB_STATUS_UNSUPPORTED, core->memory_allocate(0, kind, 64, nullptr, &ptr));
  char byte = 1, other = 2;
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, core->memory_copy(0, &byte, 0, &other, 1, TB_COPY_PEER, nullptr));
  EXPECT_EQ(ptr, untouched);
  EXPECT_EQ(byte, 1);
}

TEST_F(FakeTest, ReportsThatMemoryIsFull) {
  const tb_core_table* core = load();
  void* ptr = nullptr;
  EXPECT_STATUS(TB_STATUS_OUT_OF_MEMORY, core->memory_allocate(0, TB_MEMORY_DEVICE, uint64_t{1} << 62, nullptr, &ptr));
  EXPECT_NE(take_failure_text().find("4611686018427387904"), std::string::npos);
}

} // namespace
} // namespace torch_backend::testing
