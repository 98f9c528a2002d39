// Ranks that wait for each other on the process group's store.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace torch_backend {

struct RendezvousOptions {
  int rank;
  int size;
  std::chrono::milliseconds timeout;
  /// Ends the wait when it becomes true; may be NULL.
  const std::atomic<bool>* cancelled = nullptr;
};

/// Returns in every rank when all have called it with this `key`, with what `create` returns in rank 0; the others
/// do not call it. A key serves once. Throws, naming the ranks that did not come, after the time-out, and if it is cancelled.
std::vector<uint8_t> rendezvous(c10d::Store& store, const std::string& key, const RendezvousOptions& options,
                                const std::function<std::vector<uint8_t>()>& create);

} // namespace torch_backend
