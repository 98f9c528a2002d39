// Waiting without sleeping, for what mostly comes sooner than a sleeping thread wakes up.
#pragma once

#include <chrono>
#include <thread>

namespace xcpu {

// Waking a thread takes some 50 us, and its waker a few.
constexpr auto kLongestSpin = std::chrono::microseconds(20);

inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// On a single processor, whoever spins keeps away what it waits for.
inline bool spinning_helps() {
  static const bool helps = std::thread::hardware_concurrency() > 1;
  return helps;
}

// Whether `done()` became true within kLongestSpin.
template <typename Done>
bool spin_until(Done done) {
  constexpr int kLooksPerTime = 16; // reading the clock takes as long as several looks
  if (done()) return true;
  if (!spinning_helps()) return false;
  const auto end = std::chrono::steady_clock::now() + kLongestSpin;
  do {
    for (int i = 0; i < kLooksPerTime; ++i) {
      pause_processor();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

} // namespace xcpu
