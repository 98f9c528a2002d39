#include "csrc/distributed/Rendezvous.h"

#include <algorithm>
#include <thread>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace torch_backend {
namespace {

using Clock = std::chrono::steady_clock;

std::string rank_key(const std::string& key, int rank) {
  return c10::str(key, "/rank", rank);
}

[[noreturn]] void throw_missing(c10d::Store& store, const std::string& key, const RendezvousOptions& options) {
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank != options.rank && !store.check({rank_key(key, rank)})) {
      missing.push_back(rank);
    }
  }
  TORCH_CHECK(false, "timed out after ", options.timeout.count(), " ms waiting for ",
              missing.empty() ? std::string("the first rank to answer")
                              : c10::str(missing.size() == 1 ? "rank " : "ranks ", c10::Join(", ", missing)),
              " of ", options.size, ".");
}

} // namespace

std::vector<uint8_t> rendezvous(c10d::Store& store, const std::string& key, const RendezvousOptions& options,
                                const std::function<std::vector<uint8_t>()>& create) {
  const auto deadline = Clock::now() + options.timeout;
  const auto all_here = key + "/all";
  const auto created = key + "/created";
  if (options.rank == 0) {
    store.set(created, create());
  }
  store.set(rank_key(key, options.rank), std::vector<uint8_t>{1});
  if (store.add(key + "/count", 1) == options.size) {
    store.set(all_here, std::vector<uint8_t>{1});
  }
  // Asked, not waited for: Store::wait would keep other threads from the store, and could not be cancelled.
  auto pause = std::chrono::milliseconds(1);
  while (!store.check({all_here})) {
    TORCH_CHECK(!options.cancelled || !options.cancelled->load(), "the process group was aborted");
    if (Clock::now() >= deadline) {
      throw_missing(store, key, options);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
  return store.get(created);
}

} // namespace torch_backend
