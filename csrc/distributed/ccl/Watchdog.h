// The thread that looks after collectives nobody waits for on the host.
#pragma once

#include <memory>

namespace torch_backend::ccl {

/// What is looked after. In the watchdog's thread.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Whether there is something left to look after: if not, watch() says when there is again. Does not throw.
  virtual bool look() = 0;
};

/// Look after `watched` every kWatchInterval, as long as it lives and has something to look after.
void watch(const std::shared_ptr<Watched>& watched);

constexpr int kWatchIntervalMs = 20;

} // namespace torch_backend::ccl
