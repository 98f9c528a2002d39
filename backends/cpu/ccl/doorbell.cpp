#include "doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace xcpu::ccl {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// The order of the two counters matters on both sides: whoever rings and sees no sleeper has changed the number before
// the sleeper asks the kernel to compare it.
void doorbell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr);
}

void doorbell::wait(uint32_t seen, std::chrono::microseconds at_most) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(at_most.count() / 1'000'000);
  timeout.tv_nsec = static_cast<long>(at_most.count() % 1'000'000 * 1000);
  syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &timeout);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

} // namespace xcpu::ccl
