// What the layers of one device's allocator share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include <c10/util/StringUtil.h>

#include "csrc/core/DeviceApi.h"
#include "csrc/memory/SizePolicy.h"
#include "csrc/memory/SpinMutex.h"
#include "csrc/memory/Statistics.h"

namespace torch_backend {

/// A function that gets a Lock is called with it held, and may drop and retake it.
using Lock = std::unique_lock<SpinMutex>;

struct AllocatorState {
  /// What allocate and free rarely have to look at; bits of `attention`.
  enum Attention : uint32_t { kHistory = 1, kPendingEvents = 2, kRoutes = 4 };

  AllocatorState(DeviceApi& api, c10::DeviceIndex device)
      : api(api),
        device(device),
        async(api.async()),
        name(c10::str(api.name(), ":", static_cast<int>(device))),
        policy(api.properties(device).allocation_granularity_bytes, api.properties(device).max_allocation_bytes,
               api.properties(device).commit_granularity_bytes) {}

  void set_attention(Attention bit, bool on) {
    if (on) {
      attention.fetch_or(bit, std::memory_order_relaxed);
    } else {
      attention.fetch_and(~static_cast<uint32_t>(bit), std::memory_order_relaxed);
    }
  }

  /// By the device's properties or its driver; 0 = unknown. Not under the mutex.
  std::size_t total_memory() const {
    uint64_t free = 0;
    uint64_t total = api.properties(device).total_memory_bytes;
    if (total == 0) {
      api.memory_info(device, &free, &total); // leaves what it does not know
    }
    return total;
  }

  DeviceApi& api;
  const c10::DeviceIndex device;
  const bool async;
  const std::string name; // as PyTorch writes the device
  const SizePolicy policy;
  /// Set under the mutex; read without it, where being a moment late does no harm.
  std::atomic<uint32_t> attention{0};
  mutable SpinMutex mutex; // see Note [Caching allocator]
  Statistics stats;
};

} // namespace torch_backend
