// Every live allocation of the plugin, by its addresses, and the memory slots that need no stream's work.
//
// Device memory is shared virtual memory, whose addresses are pointers, or a buffer (cl_mem) under reserved addresses. Host
// memory is a buffer that stays mapped.
#pragma once

#include <shared_mutex>

#include "device.h"
#include "result.h"

namespace ocl {

struct allocation {
  device& owner;
  uint32_t kind; // TB_MEMORY_*
  void* base;
  uint64_t size_bytes;
  cl_mem buffer; // for shared virtual memory one on the same memory

  uint64_t offset_of(const void* ptr) const {
    return static_cast<uint64_t>(static_cast<const char*>(ptr) - static_cast<const char*>(base));
  }
};

// Looks addresses up, as long as it lives; what it finds is valid as long as the allocation. Do not allocate meanwhile.
class lookup {
 public:
  lookup();
  // Null if there is none.
  const allocation* find(const void* ptr) const;
  // The allocation with all of [ptr, ptr + size_bytes).
  result find(const char* what, const void* ptr, uint64_t size_bytes, const allocation** out_allocation) const;

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

} // namespace ocl
