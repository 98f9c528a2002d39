// The services for device libraries in processes without torch, used by many threads.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "csrc/host_services/host.h"
}

namespace torch_backend::testing {
namespace {

template <typename Run>
void in_threads(Run run) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(run, t);
  for (std::thread& thread : threads) thread.join();
}

TEST(HostServicesTest, AThreadIsToldOfItsOwnFailures) {
  const tb_host* host = tb_host_services();
  in_threads([host](int t) {
    EXPECT_STREQ(tb_host_take_error_text(), "");
    for (int i = 0; i < 1000; ++i) {
      EXPECT_EQ(host->fail(TB_STATUS_INTERNAL, "thread %d, failure %d", t, i), TB_STATUS_INTERNAL);
      if (i % 2 == 0) continue;
      ASSERT_EQ(tb_host_take_error_text(), "thread " + std::to_string(t) + ", failure " + std::to_string(i));
      ASSERT_STREQ(tb_host_take_error_text(), "");
    }
  });
}

TEST(HostServicesTest, ASettingMayChangeWhileOthersReadIt) {
  const tb_host* host = tb_host_services();
  ASSERT_EQ(tb_host_set_option("test.key", "0"), 0);
  const char* first = host->option("test.key");
  in_threads([host](int t) {
    for (int i = 0; i < 500; ++i) {
      if (t == 0) {
        EXPECT_EQ(tb_host_set_option("test.key", std::to_string(i).c_str()), 0);
      } else {
        EXPECT_LT(std::stoi(host->option("test.key")), 500);
      }
      EXPECT_EQ(host->option("test.unset"), nullptr);
    }
  });
  EXPECT_STREQ(host->option("test.key"), "499");
  EXPECT_STREQ(first, "0"); // valid until the process ends
}

TEST(HostServicesTest, TheLogKeepsTheLastLines) {
  const tb_host* host = tb_host_services();
  in_threads([host](int t) {
    for (int i = 0; i < 200; ++i) host->log(TB_LOG_INFO, ("thread " + std::to_string(t)).c_str());
  });
  const std::string longer(2 * TB_HOST_LOG_TEXT_BYTES, 'x');
  host->log(TB_LOG_ERROR, longer.c_str());
  tb_host_log_line line{};
  int lines = 0;
  while (tb_host_take_log_line(&line)) ++lines;
  EXPECT_EQ(lines, 256);
  EXPECT_EQ(line.level, TB_LOG_ERROR);
  EXPECT_EQ(std::strlen(line.text), TB_HOST_LOG_TEXT_BYTES - 1);
}

} // namespace
} // namespace torch_backend::testing
