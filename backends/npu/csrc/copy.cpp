#include <algorithm>
#include <memory>

#include "acl.h"
#include "allocation.h"
#include "device.h"
#include "opapi.h"
#include "result.h"
#include "stream.h"
#include "virtual_memory.h"

namespace npu {
namespace {

constexpr uintptr_t kAlignmentBytes = 64; // of both addresses of an asynchronous copy within the device

bool is_aligned(const void* ptr) {
  return reinterpret_cast<uintptr_t>(ptr) % kAlignmentBytes == 0;
}

result copy_async(void* dst, const void* src, uint64_t size, int kind, acl_stream stream) {
  return check(acl.aclrtMemcpyAsync(dst, size, src, size, kind, stream), "aclrtMemcpyAsync");
}

// For what aclrtMemcpyAsync does not take.
result copy_and_wait(void* dst, const void* src, uint64_t size, int kind, acl_stream stream) {
  result r = check(acl.aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
  return r.ok() ? check(acl.aclrtMemcpy(dst, size, src, size, kind), "aclrtMemcpy") : r;
}

result copy_with_host(void* dst, const void* src, uint64_t size, int kind, acl_stream stream) {
  const void* host = kind == kAclHostToDevice ? src : dst;
  return (is_page_locked(host, size) ? copy_async : copy_and_wait)(dst, src, size, kind, stream);
}

result copy_within_device(int32_t device, void* dst, const void* src, uint64_t size, acl_stream stream) {
  if (is_aligned(dst) && is_aligned(src)) return copy_async(dst, src, size, kAclDeviceToDevice, stream);
  if (!has_copy_operator()) return copy_and_wait(dst, src, size, kAclDeviceToDevice, stream);
  return copy_bytes(device, dst, src, size, stream);
}

result copy_through_host(int32_t dst_device, void* dst, const void* src, uint64_t size, acl_stream stream) {
  const std::unique_ptr<char[]> host(new char[size]);
  if (result r = copy_and_wait(host.get(), src, size, kAclDeviceToHost, stream); !r.ok()) return r;
  const bound binding(dst_device);
  if (!binding.outcome().ok()) return binding.outcome();
  return check(acl.aclrtMemcpy(dst, size, host.get(), size, kAclHostToDevice), "aclrtMemcpy");
}

result copy_to_peer(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size,
                    acl_stream stream) {
  if (result r = enable_peers(src_device, dst_device); !r.ok()) return r;
  const bool aligned = is_aligned(dst) && is_aligned(src);
  // aclrtMemcpy does not take mapped memory of two devices
  if (!aligned && (is_committed(dst) || is_committed(src)))
    return copy_through_host(dst_device, dst, src, size, stream);
  return (aligned ? copy_async : copy_and_wait)(dst, src, size, kAclDeviceToDevice, stream);
}

} // namespace

result memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                   uint32_t kind, tb_stream* stream) {
  const int32_t device = kind == TB_COPY_DEVICE_TO_HOST || kind == TB_COPY_PEER ? src_device : dst_device;
  acl_stream handle = nullptr;
  if (result r = handle_of(device, stream, &handle); !r.ok()) return r;
  switch (kind) {
    case TB_COPY_HOST_TO_DEVICE:
      return copy_with_host(dst, src, size_bytes, kAclHostToDevice, handle);
    case TB_COPY_DEVICE_TO_HOST:
      return copy_with_host(dst, src, size_bytes, kAclDeviceToHost, handle);
    case TB_COPY_DEVICE_TO_DEVICE:
      return copy_within_device(device, dst, src, size_bytes, handle);
    case TB_COPY_PEER:
      return copy_to_peer(dst_device, dst, src_device, src, size_bytes, handle);
    default:
      return failure(TB_STATUS_UNSUPPORTED, "memory_copy: copies of kind %u are not offered", kind);
  }
}

result memory_fill(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                   tb_stream* stream) {
  acl_stream handle = nullptr;
  if (result r = handle_of(device, stream, &handle); !r.ok()) return r;
  const auto* bytes = static_cast<const unsigned char*>(pattern);
  if (std::all_of(bytes, bytes + pattern_bytes, [&](unsigned char byte) { return byte == *bytes; }))
    return check(acl.aclrtMemsetAsync(dst, size_bytes, *bytes, size_bytes, handle), "aclrtMemsetAsync");
  return fill_elements(device, dst, pattern, pattern_bytes, size_bytes, handle);
}

} // namespace npu
