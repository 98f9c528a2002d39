// Private pools and limits of the device's allocator.

#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/memory/MemoryPool.h"
#include "torch_backend/api.h"

namespace torch_backend {

MemPool::MemPool(c10::DeviceIndex device)
    : device_(resolve_device(device)), id_(generate_mempool_id(/*user_created=*/true)) {
  device_allocator().retain_pool(device_, id_);
}

MemPool::~MemPool() {
  try {
    device_allocator().release_pool(device_, id_);
    device_allocator().empty_cache(device_, id_);
  } catch (const c10::Error& error) {
    TORCH_WARN("While releasing a memory pool: ", error.what_without_backtrace());
  }
}

int MemPool::use_count() const {
  return device_allocator().pool_use_count(device_, id_);
}

MemPoolGuard::MemPoolGuard(const MemPool& pool) : device_(pool.device()), id_(pool.id()) {
  device_allocator().begin_allocate_current_thread_to_pool(device_, id_);
}

MemPoolGuard::~MemPoolGuard() {
  try {
    device_allocator().end_allocate_to_pool(device_, id_);
    device_allocator().release_pool(device_, id_);
  } catch (const c10::Error& error) {
    TORCH_WARN("While leaving a memory pool: ", error.what_without_backtrace());
  }
}

void set_memory_fraction(double fraction, c10::DeviceIndex device) {
  device_allocator().set_memory_fraction(fraction, resolve_device(device));
}

} // namespace torch_backend
