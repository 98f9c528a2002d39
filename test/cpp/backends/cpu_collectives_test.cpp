// Collectives of the xcpu device between threads of one process. Between processes, and every reduction: test/python.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/xcpu_test.h"

namespace torch_backend::testing {
namespace {

constexpr tb_dtype kInt32{TB_DTYPE_INT, 32, 1};
constexpr int32_t kRanks = 3;

class XcpuCollectivesTest : public XcpuTest, public ::testing::WithParamInterface<option_map> {
 protected:
  void SetUp() override {
    option_map options = GetParam();
    options["ccl"] = "1";
    options["devices"] = std::to_string(kRanks);
    load(options);
    ccl = static_cast<const tb_ccl_table*>(plugin->table("ccl.1"));
    ASSERT_NE(ccl, nullptr);
  }

  // `run` for every rank, in a thread each, with a communicator of all.
  void as_ranks(const std::function<void(int32_t, tb_comm*)>& run) {
    std::vector<char> id(ccl->unique_id_bytes);
    ASSERT_OK(ccl->unique_id_create(id.data()));
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        tb_comm* comm = nullptr;
        ASSERT_OK(ccl->comm_create(rank, kRanks, rank, id.data(), &comm));
        run(rank, comm);
        EXPECT_OK(ccl->comm_destroy(comm));
      });
    for (std::thread& thread : threads) thread.join();
  }

  const tb_ccl_table* ccl = nullptr;
};

TEST_P(XcpuCollectivesTest, ThreadsReduceAgainAndAgain) {
  as_ranks([this](int32_t rank, tb_comm* comm) {
    for (uint64_t count : {1, 7, 1000, 30000}) {
      auto* data = reinterpret_cast<int32_t*>(allocate(rank, count * 4));
      for (int round = 0; round < 20; ++round) {
        for (uint64_t i = 0; i < count; ++i) data[i] = static_cast<int32_t>(i) + rank + round;
        EXPECT_OK(ccl->all_reduce(data, data, count, kInt32, TB_REDUCE_SUM, comm, nullptr));
        synchronize(rank);
        for (uint64_t i = 0; i < count; ++i)
          ASSERT_EQ(data[i], kRanks * (static_cast<int32_t>(i) + round) + kRanks * (kRanks - 1) / 2);
      }
      release(rank, data, count * 4);
    }
  });
}

// None at all, such as fit into a piece, and such as go around the ring between two ranks.
TEST_P(XcpuCollectivesTest, MessagesOfAllSizesGoAroundInGroups) {
  constexpr uint64_t kMost = 600'000;
  as_ranks([this](int32_t rank, tb_comm* comm) {
    auto* mine = reinterpret_cast<int32_t*>(allocate(rank, kMost * 4));
    auto* theirs = reinterpret_cast<int32_t*>(allocate(rank, kMost * 4));
    const int32_t next = (rank + 1) % kRanks, before = (rank + kRanks - 1) % kRanks;
    for (uint64_t count : {0ul, 1ul, 5000ul, 40'000ul, kMost, 7ul, 100ul, 3ul, 200ul, 2ul, 300ul, 0ul})
      for (int32_t round = 0; round < 3; ++round) {
        for (uint64_t i = 0; i < count; ++i) mine[i] = rank * 1000 + round + static_cast<int32_t>(i);
        EXPECT_OK(ccl->group_begin());
        EXPECT_OK(ccl->send(mine, count, kInt32, next, comm, nullptr));
        EXPECT_OK(ccl->recv(theirs, count, kInt32, before, comm, nullptr));
        EXPECT_OK(ccl->group_end());
        synchronize(rank);
        for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(theirs[i], before * 1000 + round + static_cast<int32_t>(i));
      }
    release(rank, mine, kMost * 4);
    release(rank, theirs, kMost * 4);
  });
}

TEST_P(XcpuCollectivesTest, AnAbortEndsWhatWaits) {
  as_ranks([this](int32_t rank, tb_comm* comm) {
    auto* data = reinterpret_cast<int32_t*>(allocate(rank, 4));
    std::thread aborting;
    if (rank == 0)
      aborting = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_OK(ccl->comm_abort(comm));
      });
    if (rank == 0 || rank == 1) { // the last one never comes
      tb_status status = ccl->all_reduce(data, data, 1, kInt32, TB_REDUCE_SUM, comm, nullptr);
      if (status == TB_STATUS_OK && core->stream_synchronize) status = core->stream_synchronize(rank, nullptr);
      EXPECT_NE(status, TB_STATUS_OK);
    }
    if (aborting.joinable()) aborting.join();
    release(rank, data, 4);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, XcpuCollectivesTest,
                         ::testing::Values(option_map{}, option_map{{"async", "1"}},
                                           option_map{{"async", "1"}, {"delay_us", "0-100"}}),
                         [](const auto& test) {
                           return test.param.empty()                 ? std::string("sync")
                                  : test.param.count("delay_us") > 0 ? std::string("delayed")
                                                                     : std::string("async");
                         });

} // namespace
} // namespace torch_backend::testing
