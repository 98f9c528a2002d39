// A lock for critical sections that are shorter than going to sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace torch_backend {

/// Half the cost of an uncontended std::mutex, because unlocking is a plain store. That rules out waking sleepers, so
/// who has to wait spins, then yields, then sleeps for short times. Only for sections that call nothing that blocks.
class SpinMutex {
 public:
  void lock() {
    if (__builtin_expect(locked_.exchange(true, std::memory_order_acquire), 0)) {
      lock_slowly();
    }
  }
  void unlock() {
    locked_.store(false, std::memory_order_release);
  }

 private:
  __attribute__((noinline)) void lock_slowly() {
    constexpr int kSpins = 200;
    constexpr int kYields = 50;
    for (int tries = 0;; ++tries) {
      if (!locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire)) {
        return;
      }
      if (tries < kSpins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
      } else if (tries < kSpins + kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
  }

  std::atomic<bool> locked_{false};
};

} // namespace torch_backend
