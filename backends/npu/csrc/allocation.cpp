#include "allocation.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "acl.h"

namespace npu {
namespace {

struct page_locked_memory {
  std::shared_mutex mutex;                // guards ranges
  std::map<const char*, uint64_t> ranges; // size by base
};

page_locked_memory& page_locked() {
  static auto& all = *new page_locked_memory;
  return all;
}

result allocate_on_host(uint64_t size_bytes, void** out_ptr) {
  void* ptr = nullptr;
  result r = check(acl.aclrtMallocHost(&ptr, size_bytes), "aclrtMallocHost");
  if (!r.ok()) return r;
  const std::lock_guard<std::shared_mutex> lock(page_locked().mutex);
  page_locked().ranges[static_cast<const char*>(ptr)] = size_bytes;
  *out_ptr = ptr;
  return r;
}

result free_on_host(void* ptr) {
  {
    const std::lock_guard<std::shared_mutex> lock(page_locked().mutex);
    page_locked().ranges.erase(static_cast<const char*>(ptr));
  }
  return check(acl.aclrtFreeHost(ptr), "aclrtFreeHost");
}

} // namespace

result memory_allocate(int32_t, uint32_t kind, uint64_t size_bytes, tb_stream*, void** out_ptr) {
  if (kind == TB_MEMORY_HOST) return allocate_on_host(size_bytes, out_ptr);
  if (kind != TB_MEMORY_DEVICE) return failure(TB_STATUS_UNSUPPORTED, "npu has no memory of kind %u", kind);
  void* ptr = nullptr;
  result r = check(acl.aclrtMallocAlign32(&ptr, size_bytes, kAclHugeFirst), "aclrtMallocAlign32");
  if (r.ok()) *out_ptr = ptr;
  return r;
}

result memory_free(int32_t, uint32_t kind, void* ptr, uint64_t, tb_stream*) {
  return kind == TB_MEMORY_HOST ? free_on_host(ptr) : check(acl.aclrtFree(ptr), "aclrtFree");
}

result memory_info(int32_t, uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  size_t free_bytes = 0, total_bytes = 0;
  result r = check(acl.aclrtGetMemInfo(kAclHbm, &free_bytes, &total_bytes), "aclrtGetMemInfo");
  if (!r.ok()) return r;
  *out_free_bytes = free_bytes;
  *out_total_bytes = total_bytes;
  return r;
}

bool is_page_locked(const void* ptr, uint64_t size_bytes) {
  const auto* first = static_cast<const char*>(ptr);
  const std::shared_lock<std::shared_mutex> lock(page_locked().mutex);
  auto next = page_locked().ranges.upper_bound(first);
  if (next == page_locked().ranges.begin()) return false;
  const auto& [base, size] = *--next;
  return first + size_bytes <= base + size;
}

} // namespace npu
