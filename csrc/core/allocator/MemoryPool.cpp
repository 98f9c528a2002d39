#include "csrc/core/allocator/MemoryPool.h"

#include <atomic>

namespace torch_backend {

c10::MempoolId_t generate_mempool_id(bool user_created) {
  static std::atomic<c10::CaptureId_t> next_user{1};
  static std::atomic<c10::CaptureId_t> next_capture{1};
  if (user_created) {
    return {0, next_user.fetch_add(1, std::memory_order_relaxed)};
  }
  return {next_capture.fetch_add(1, std::memory_order_relaxed), 0};
}

} // namespace torch_backend
