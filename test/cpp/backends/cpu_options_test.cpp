// Options of the xcpu device: what is accepted, and what a refusal says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <tuple>

#include "support/xcpu_test.h"

namespace torch_backend::testing {
namespace {

class XcpuOptionsTest : public XcpuTest {
 protected:
  int32_t count() {
    int32_t devices = 0;
    EXPECT_OK(core->device_count(&devices));
    return devices;
  }
  uint64_t total_memory() {
    tb_device_properties properties = {};
    properties.struct_size = sizeof properties;
    EXPECT_OK(core->device_properties(0, &properties));
    uint64_t free = 0, total = 0;
    EXPECT_OK(core->memory_info(0, &free, &total));
    EXPECT_EQ(total, properties.total_memory_bytes);
    return total;
  }
};

TEST_F(XcpuOptionsTest, DefaultsNeedNoOption) {
  load({});
  EXPECT_EQ(count(), 2);
  EXPECT_EQ(total_memory(),
            static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(core->stream_create, nullptr);
  EXPECT_EQ(core->memory_map, nullptr);
}

TEST_F(XcpuOptionsTest, EmptyMeansUnset) {
  load({{"devices", ""}, {"memory", ""}, {"async", ""}, {"delay_us", ""}, {"protect", ""}});
  EXPECT_EQ(count(), 2);
  EXPECT_EQ(core->stream_create, nullptr);
}

TEST_F(XcpuOptionsTest, DevicesAreCounted) {
  load({{"devices", "64"}});
  EXPECT_EQ(count(), 64);
  void* ptr = allocate(63, 64);
  release(63, ptr, 64);
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, core->memory_allocate(64, TB_MEMORY_DEVICE, 64, nullptr, &ptr));
  EXPECT_NE(take_failure_text().find("xcpu.devices is 64"), std::string::npos);
}

TEST_F(XcpuOptionsTest, MemoryHasUnits) {
  const std::tuple<const char*, uint64_t> cases[] = {
      {"1", 1},
      {"1000", 1000},
      {"77B", 77},
      {"3KiB", 3072},
      {"512MiB", 512ull << 20},
      {"4GiB", 4ull << 30},
      {"1TiB", 1ull << 40},
  };
  for (const auto& [text, expected] : cases) {
    load({{"memory", text}});
    EXPECT_EQ(total_memory(), expected) << text;
  }
}

TEST_F(XcpuOptionsTest, DelaysAreNumbersOrRanges) {
  for (const char* good : {"0", "100", "0-100", "5-5"}) load({{"async", "1"}, {"delay_us", good}});
  load({{"delay_us", "0"}});
}

TEST_F(XcpuOptionsTest, BadValuesAreRefusedWithWhatIsAllowed) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"devices", "0", "1 to 64"},        {"devices", "65", "1 to 64"},    {"devices", "-1", "1 to 64"},
      {"devices", "2.0", "1 to 64"},      {"devices", " 2", "1 to 64"},    {"memory", "0", "512MiB"},
      {"memory", "4GB", "GiB"},           {"memory", "GiB", "GiB"},        {"memory", "1.5GiB", "GiB"},
      {"memory", "99999999TiB", "TiB"},   {"memory", "-1", "512MiB"},      {"async", "yes", "0 or 1"},
      {"async", "2", "0 or 1"},           {"protect", "true", "0 or 1"},   {"ipc", "yes", "0 or 1"},
      {"modules", "yes", "side_by_side"}, {"races", "yes", "0 or 1"},      {"threads", "0", "1 to 1024"},
      {"threads", "1025", "1 to 1024"},   {"delay_us", "9-5", "LOW-HIGH"}, {"delay_us", "5-", "LOW-HIGH"},
      {"delay_us", "-5", "LOW-HIGH"},     {"delay_us", "1ms", "LOW-HIGH"}, {"delay_us", "10000001", "10000000"},
  };
  for (const auto& [key, value, allowed] : cases) {
    set_options({{std::string("xcpu.") + key, value}});
    EXPECT_EQ(load_plugin(TB_XCPU_PLUGIN), nullptr) << key << "=" << value;
    const std::string text = take_failure_text();
    for (const char* part : {key, value, allowed}) EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST_F(XcpuOptionsTest, ADelayWithoutAsynchronyIsRefused) {
  set_options({{"xcpu.delay_us", "10"}});
  EXPECT_EQ(load_plugin(TB_XCPU_PLUGIN), nullptr);
  EXPECT_NE(take_failure_text().find("xcpu.async=1"), std::string::npos);
}

TEST_F(XcpuOptionsTest, RacesOfItemsInOrderAreRefused) {
  for (const char* modules : {"0", "1"}) {
    set_options({{"xcpu.races", "1"}, {"xcpu.modules", modules}});
    EXPECT_EQ(load_plugin(TB_XCPU_PLUGIN), nullptr);
    EXPECT_NE(take_failure_text().find("xcpu.modules=side_by_side"), std::string::npos);
  }
}

} // namespace
} // namespace torch_backend::testing
