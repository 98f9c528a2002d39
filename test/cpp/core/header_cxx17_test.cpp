// device.h compiles alone, as strict C++17, and its types pass between C and C++.
#include "torch_backend/device.h"

#include <gtest/gtest.h>

#include <type_traits>

extern "C" tb_status header_c99_test(void);

// Plain data on both sides: what the ABI hands over can be copied as bytes.
static_assert(std::is_trivial_v<tb_core_table> && std::is_standard_layout_v<tb_core_table>);
static_assert(std::is_trivial_v<tb_device_properties> && std::is_standard_layout_v<tb_device_properties>);
static_assert(std::is_trivial_v<tb_arg> && std::is_standard_layout_v<tb_arg>);
static_assert(std::is_same_v<decltype(&tb_plugin_entry), tb_plugin_entry_function>);

TEST(Header, CompilesAsC99) {
  EXPECT_EQ(header_c99_test(), TB_STATUS_OK);
}
