// Loads plugins for tests and plays the core's part towards them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "torch_backend/device.h"

namespace torch_backend::testing {

using option_map = std::map<std::string, std::string>;

// What host->option answers, to all plugins. Plugins that read an option again see a change at once.
void set_options(option_map options);
void set_option(const std::string& key, const std::string& value);

// The text of the calling thread's last host->fail; forgotten by the call.
std::string take_failure_text();

// Loads a private copy of the library, so that every test has an instance with the options it has set, although a
// plugin is loaded once and never unloaded. Null if the plugin refused: see take_failure_text.
const tb_plugin* load_plugin(const std::string& path);

// Shows the plugin's text if the status is another one.
::testing::AssertionResult status_is(tb_status actual, tb_status expected, const char* expression);

#define EXPECT_STATUS(expected, call) EXPECT_TRUE(::torch_backend::testing::status_is((call), (expected), #call))
#define EXPECT_OK(call) EXPECT_STATUS(TB_STATUS_OK, call)
#define ASSERT_OK(call) ASSERT_TRUE(::torch_backend::testing::status_is((call), TB_STATUS_OK, #call))

} // namespace torch_backend::testing
