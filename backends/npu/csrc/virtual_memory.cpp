#include "virtual_memory.h"

#include <iterator>
#include <map>
#include <mutex>

#include "acl.h"

namespace npu {
namespace {

// Memory is unmapped by its address, and given back by its handle.
struct commit {
  uint64_t size_bytes;
  acl_memory handle;
};

struct all_commits {
  std::mutex mutex; // guards by_address
  std::map<const char*, commit> by_address;
};

all_commits& all() {
  static auto& a = *new all_commits;
  return a;
}

acl_memory_properties memory_of(int32_t device) {
  acl_memory_properties properties{};
  properties.attribute = kAclHbmHuge;
  properties.location = {static_cast<uint32_t>(device), kAclLocationDevice};
  return properties;
}

bool can_map() {
  return acl.aclrtMemGetAllocationGranularity && acl.aclrtReserveMemAddress && acl.aclrtReleaseMemAddress &&
         acl.aclrtMallocPhysical && acl.aclrtFreePhysical && acl.aclrtMapMem && acl.aclrtUnmapMem;
}

result map(void* ptr, uint64_t size_bytes, acl_memory handle) {
  return check(acl.aclrtMapMem(ptr, size_bytes, 0, handle, 0), "aclrtMapMem");
}

} // namespace

uint64_t commit_granularity(int32_t device) {
  size_t bytes = 0;
  const acl_memory_properties properties = memory_of(device);
  if (!can_map() ||
      acl.aclrtMemGetAllocationGranularity(&properties, kAclGranularityRecommended, &bytes) != kAclSuccess)
    return 0;
  return bytes;
}

result address_reserve(int32_t, uint64_t size_bytes, void** out_ptr) {
  void* ptr = nullptr;
  result r = check(acl.aclrtReserveMemAddress(&ptr, size_bytes, 0, nullptr, kAclReserveHuge), "aclrtReserveMemAddress");
  if (r.ok()) *out_ptr = ptr;
  return r;
}

result address_release(int32_t, void* ptr, uint64_t) {
  return check(acl.aclrtReleaseMemAddress(ptr), "aclrtReleaseMemAddress");
}

result memory_commit(int32_t device, void* ptr, uint64_t size_bytes) {
  const acl_memory_properties properties = memory_of(device);
  acl_memory handle = nullptr;
  result r = check(acl.aclrtMallocPhysical(&handle, size_bytes, &properties, 0), "aclrtMallocPhysical");
  if (!r.ok()) return r;
  r = map(ptr, size_bytes, handle);
  if (!r.ok()) {
    acl.aclrtFreePhysical(handle);
    return r;
  }
  const std::lock_guard<std::mutex> lock(all().mutex);
  all().by_address[static_cast<const char*>(ptr)] = {size_bytes, handle};
  return r;
}

result memory_decommit(int32_t, void* ptr, uint64_t size_bytes) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  const auto found = all().by_address.find(static_cast<const char*>(ptr));
  if (found == all().by_address.end() || found->second.size_bytes != size_bytes)
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "memory_decommit: %llu bytes at %p are not what one memory_commit put there",
                   static_cast<unsigned long long>(size_bytes), ptr);
  const acl_memory handle = found->second.handle;
  result r = check(acl.aclrtUnmapMem(ptr), "aclrtUnmapMem");
  if (!r.ok()) return r;
  r = check(acl.aclrtFreePhysical(handle), "aclrtFreePhysical");
  if (r.ok())
    all().by_address.erase(found);
  else
    map(ptr, size_bytes, handle); // a failure changes nothing
  return r;
}

bool is_committed(const void* ptr) {
  const auto* address = static_cast<const char*>(ptr);
  const std::lock_guard<std::mutex> lock(all().mutex);
  const auto next = all().by_address.upper_bound(address);
  if (next == all().by_address.begin()) return false;
  const auto& [base, found] = *std::prev(next);
  return address < base + found.size_bytes;
}

} // namespace npu
