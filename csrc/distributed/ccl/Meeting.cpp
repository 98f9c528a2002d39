#include "csrc/distributed/ccl/Meeting.h"

#include <algorithm>
#include <thread>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace torch_backend::ccl {
namespace {

using Clock = std::chrono::steady_clock;

std::string rank_key(const std::string& key, int rank) {
  return c10::str(key, "/rank", rank);
}

[[noreturn]] void throw_missing(c10d::Store& store, const std::string& key, const Attendance& who) {
  std::vector<int> missing;
  for (int rank = 0; rank < who.size; ++rank) {
    if (rank != who.rank && !store.check({rank_key(key, rank)})) {
      missing.push_back(rank);
    }
  }
  TORCH_CHECK(false, "timed out after ", who.timeout.count(), " ms waiting for ",
              missing.empty() ? std::string("the first rank to answer")
                              : c10::str(missing.size() == 1 ? "rank " : "ranks ", c10::Join(", ", missing)),
              " of ", who.size, ".");
}

} // namespace

std::vector<uint8_t> meet(c10d::Store& store, const std::string& key, const Attendance& who,
                          const std::function<std::vector<uint8_t>()>& bring) {
  const auto deadline = Clock::now() + who.timeout;
  const auto all_here = key + "/all";
  const auto brought = key + "/brought";
  if (who.rank == 0) {
    store.set(brought, bring());
  }
  store.set(rank_key(key, who.rank), std::vector<uint8_t>{1});
  if (store.add(key + "/count", 1) == who.size) {
    store.set(all_here, std::vector<uint8_t>{1});
  }
  // Asked, not waited for: Store::wait would keep other threads from the store, and could not be cancelled.
  auto pause = std::chrono::milliseconds(1);
  while (!store.check({all_here})) {
    TORCH_CHECK(!who.cancelled || !who.cancelled->load(), "the process group was aborted");
    if (Clock::now() >= deadline) {
      throw_missing(store, key, who);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
  return store.get(brought);
}

} // namespace torch_backend::ccl
