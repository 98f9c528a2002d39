// How a thread sleeps until another one, of any process, has changed something in shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace xcpu::ccl {

// In shared memory; zero is its first state. A waiter notes the number of rings, looks at what it waits for, and sleeps
// only while the number is the same: no change is missed.
class doorbell {
 public:
  uint32_t rings() const {
    return rings_.load(std::memory_order_seq_cst);
  }
  // After the change has been stored.
  void ring();
  // Until it rings, which it may have done since `seen` was noted, or until the time is over. May return for no reason.
  void wait(uint32_t seen, std::chrono::microseconds at_most);

 private:
  alignas(64) std::atomic<uint32_t> rings_;
  std::atomic<uint32_t> sleepers_;
};

} // namespace xcpu::ccl
