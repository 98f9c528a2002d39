// Memory and copies.
#include <cstdlib>
#include <cstring>

#include "runtime.h"

namespace sim {
namespace {

struct host_memory {
  std::mutex mutex; // guards sizes
  std::map<const char*, uint64_t> sizes;
};

host_memory& page_locked() {
  static auto& all = *new host_memory;
  return all;
}

device* device_of_address(const void* ptr) {
  for (int i = 0; i < config().devices; ++i) {
    device* d = device_at(i);
    if (d->memory.has(ptr)) return d;
  }
  return nullptr;
}

int check_copy(const char* name, const void* dst, size_t dst_max, const void* src, size_t size, int kind, bool async) {
  if (size == 0 || dst_max < size) return refuse(kInvalid, "%s of %zu bytes, but destMax is %zu", name, size, dst_max);
  if (kind < 0 || kind > 3) return refuse(kInvalid, "%s: kind %d", name, kind);
  const bool to_device = kind == 1 || kind == 3, from_device = kind == 2 || kind == 3;
  if (is_device_address(dst) != to_device || is_device_address(src) != from_device)
    return refuse(kInvalid, "%s: kind %d, dst is %s memory, src is %s memory", name, kind,
                  is_device_address(dst) ? "device" : "host", is_device_address(src) ? "device" : "host");
  const uint64_t both = reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src);
  if (async && kind == 3 && both % kAlignment != 0)
    return refuse(kInvalid, "%s within the device: addresses are not aligned to 64 bytes", name);
  if (async && kind != 3 && !is_page_locked(kind == 1 ? src : dst, size))
    return refuse(kInvalid, "%s: host memory is not page-locked", name);
  return kOk;
}

// Pre: check_copy. Runs when the stream comes to it.
int copy(const char* name, void* dst, const void* src, size_t size, int kind, bool async) {
  device *dst_owner = nullptr, *src_owner = nullptr;
  char* to = kind == 2 ? static_cast<char*>(dst) : find_memory(dst, size, &dst_owner);
  const char* from = kind == 1 ? static_cast<const char*>(src) : find_memory(src, size, &src_owner);
  if (!to || !from) return refuse(kKernelFailed, "%s: %zu bytes outside of an allocation", name, size);
  if (kind == 3 && dst_owner != src_owner) {
    if (!async && (is_reserved(dst) || is_reserved(src)))
      return refuse(kInvalid, "%s of mapped memory between devices: aclrtMemcpyAsync alone copies it", name);
    const std::scoped_lock lock(dst_owner->mutex, src_owner->mutex);
    if (!dst_owner->peers[src_owner->index] || !src_owner->peers[dst_owner->index])
      return refuse(kKernelFailed, "%s between devices that may not access each other", name);
  }
  std::memmove(to, from, size);
  return kOk;
}

} // namespace

char* find_memory(const void* ptr, uint64_t size, device** out_owner) {
  device* d = device_of_address(ptr);
  if (!d) return find_mapped(ptr, size, out_owner);
  const std::lock_guard<std::mutex> lock(d->mutex);
  char* const found = d->memory.resolve(ptr, size);
  if (found && out_owner) *out_owner = d;
  return found;
}

bool is_device_address(const void* ptr) {
  return device_of_address(ptr) != nullptr || is_reserved(ptr);
}

bool is_page_locked(const void* ptr, uint64_t size) {
  const auto* first = static_cast<const char*>(ptr);
  const std::lock_guard<std::mutex> lock(page_locked().mutex);
  auto next = page_locked().sizes.upper_bound(first);
  if (next == page_locked().sizes.begin()) return false;
  --next;
  return first + size <= next->first + next->second;
}

} // namespace sim

using namespace sim;

SIM_API int aclrtMallocAlign32(void** ptr, size_t size, int policy) {
  if (const int error = enter("aclrtMallocAlign32")) return error;
  if (size == 0 || policy < 0 || policy > 2)
    return refuse(kInvalid, "aclrtMallocAlign32(%zu, policy %d)", size, policy);
  device* d = current_device();
  const std::lock_guard<std::mutex> lock(d->mutex);
  *ptr = d->memory.allocate(size);
  return *ptr ? kOk : refuse(kOutOfMemory, "aclrtMallocAlign32: no %zu bytes are free", size);
}

SIM_API int aclrtFree(void* ptr) {
  if (const int error = enter("aclrtFree")) return error;
  device* d = device_of_address(ptr);
  if (!d) return refuse(kInvalid, "aclrtFree: not an address of device memory");
  const std::lock_guard<std::mutex> lock(d->mutex);
  return d->memory.free(static_cast<char*>(ptr)) ? kOk : refuse(kInvalid, "aclrtFree: not the start of an allocation");
}

SIM_API int aclrtMallocHost(void** ptr, size_t size) {
  if (const int error = enter("aclrtMallocHost")) return error;
  if (size == 0 || posix_memalign(ptr, 64, size) != 0) return refuse(207018, "aclrtMallocHost(%zu)", size);
  const std::lock_guard<std::mutex> lock(page_locked().mutex);
  page_locked().sizes[static_cast<char*>(*ptr)] = size;
  return kOk;
}

SIM_API int aclrtFreeHost(void* ptr) {
  if (const int error = enter("aclrtFreeHost")) return error;
  const std::lock_guard<std::mutex> lock(page_locked().mutex);
  if (page_locked().sizes.erase(static_cast<char*>(ptr)) == 0)
    return refuse(kInvalid, "aclrtFreeHost: memory that aclrtMallocHost has not returned");
  std::free(ptr);
  return kOk;
}

SIM_API int aclrtGetMemInfo(int attribute, size_t* free_bytes, size_t* total_bytes) {
  if (const int error = enter("aclrtGetMemInfo")) return error;
  if (attribute != 1) return refuse(kInvalid, "aclrtGetMemInfo: attribute %d has no memory here", attribute);
  device* d = current_device();
  const std::lock_guard<std::mutex> lock(d->mutex);
  *free_bytes = d->memory.size() - d->memory.used();
  *total_bytes = d->memory.size();
  return kOk;
}

SIM_API int aclrtMemcpy(void* dst, size_t dst_max, const void* src, size_t size, int kind) {
  if (const int error = enter("aclrtMemcpy")) return error;
  if (const int error = check_copy("aclrtMemcpy", dst, dst_max, src, size, kind, false)) return error;
  return copy("aclrtMemcpy", dst, src, size, kind, false);
}

SIM_API int aclrtMemcpyAsync(void* dst, size_t dst_max, const void* src, size_t size, int kind, void* handle) {
  if (const int error = enter("aclrtMemcpyAsync")) return error;
  if (const int error = check_copy("aclrtMemcpyAsync", dst, dst_max, src, size, kind, true)) return error;
  stream* s = nullptr;
  if (const int error = find_stream("aclrtMemcpyAsync", handle, &s)) return error;
  enqueue(s, [=] { return copy("aclrtMemcpyAsync", dst, src, size, kind, true); });
  return kOk;
}

SIM_API int aclrtMemsetAsync(void* ptr, size_t max, int32_t value, size_t size, void* handle) {
  if (const int error = enter("aclrtMemsetAsync")) return error;
  if (size == 0 || max < size) return refuse(kInvalid, "aclrtMemsetAsync of %zu bytes, but maxCount is %zu", size, max);
  if (!is_device_address(ptr)) return refuse(kInvalid, "aclrtMemsetAsync: not device memory");
  stream* s = nullptr;
  if (const int error = find_stream("aclrtMemsetAsync", handle, &s)) return error;
  enqueue(s, [=] {
    device* owner = nullptr;
    char* at = find_memory(ptr, size, &owner);
    if (owner != s->owner)
      return refuse(kKernelFailed, "aclrtMemsetAsync: %zu bytes outside of an allocation of the device", size);
    std::memset(at, value, size);
    return kOk;
  });
  return kOk;
}
