#include "copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "allocation.h"
#include "device.h"
#include "options.h"
#include "scoped_access.h"
#include "stream.h"

namespace xcpu {
namespace {

// So many bytes are written in less time than it takes to wake a thread.
constexpr uint64_t kBriefBytes = 16 << 10;

// Works at any alignment. A pattern of equal bytes, as in the common fill with zeros, is left to memset; any other is
// repeated up to a block that stays in the first-level cache, and the block is copied.
void fill(unsigned char* dst, const unsigned char* pattern, uint32_t pattern_bytes, uint64_t size_bytes) {
  constexpr uint64_t kBlock = 4096;
  if (std::all_of(pattern, pattern + pattern_bytes, [=](unsigned char byte) { return byte == pattern[0]; })) {
    std::memset(dst, pattern[0], size_bytes);
    return;
  }
  std::memcpy(dst, pattern, pattern_bytes);
  uint64_t done = pattern_bytes;
  while (done < size_bytes) {
    const uint64_t step = std::min({done, kBlock, size_bytes - done});
    std::memcpy(dst + done, dst, step);
    done += step;
  }
}

result check_devices(int32_t dst_device, int32_t src_device, uint32_t kind) {
  switch (kind) {
    case TB_COPY_HOST_TO_DEVICE:
      return check_device(dst_device);
    case TB_COPY_DEVICE_TO_HOST:
      return check_device(src_device);
    case TB_COPY_DEVICE_TO_DEVICE:
      if (dst_device != src_device)
        return failure(TB_STATUS_INVALID_ARGUMENT, "memory_copy: within one device, from %d to %d", src_device,
                       dst_device);
      return check_device(dst_device);
    case TB_COPY_PEER: {
      result r = check_device(dst_device);
      return r.ok() ? check_device(src_device) : r;
    }
  }
  return failure(TB_STATUS_UNSUPPORTED, "memory_copy: xcpu has no copy of kind %u", kind);
}

// A driver may take a copy with the wrong kind for what the kind says, and drop it.
result check_host_side(const void* ptr, const char* what) {
  allocation found;
  if (!settings().protect || !allocation_find(ptr, &found) || found.kind != TB_MEMORY_DEVICE) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "memory_copy: %s %p is memory of device %d, not the host's", what, ptr,
                 found.device);
}

} // namespace

result memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                   uint32_t kind, tb_stream* stream) {
  result r = check_devices(dst_device, src_device, kind);
  if (r.ok() && kind == TB_COPY_HOST_TO_DEVICE) r = check_host_side(src, "src");
  if (r.ok() && kind == TB_COPY_DEVICE_TO_HOST) r = check_host_side(dst, "dst");
  if (!r.ok()) return r;
  const int32_t to = kind == TB_COPY_DEVICE_TO_HOST ? kHostSide : dst_device;
  const int32_t from = kind == TB_COPY_HOST_TO_DEVICE ? kHostSide : src_device;
  const int32_t stream_device = kind == TB_COPY_DEVICE_TO_HOST || kind == TB_COPY_PEER ? src_device : dst_device;
  return run_on_stream(slot::memory_copy, stream_device, stream, size_bytes <= kBriefBytes, [=]() -> result {
    const scoped_access write(to, dst, size_bytes, TB_MAP_WRITE);
    if (!write.opened().ok()) return write.opened();
    const scoped_access read(from, src, size_bytes, TB_MAP_READ);
    if (!read.opened().ok()) return read.opened();
    std::memcpy(dst, src, size_bytes);
    return {};
  });
}

result memory_fill(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                   tb_stream* stream) {
  std::array<unsigned char, 16> bytes;
  const bool power_of_two = pattern_bytes != 0 && (pattern_bytes & (pattern_bytes - 1)) == 0;
  if (!power_of_two || pattern_bytes > bytes.size() || size_bytes == 0 || size_bytes % pattern_bytes != 0)
    return failure(TB_STATUS_INVALID_ARGUMENT, "memory_fill: %llu bytes with a pattern of %u bytes",
                   static_cast<unsigned long long>(size_bytes), pattern_bytes);
  result r = check_device(device);
  if (!r.ok()) return r;
  std::memcpy(bytes.data(), pattern, pattern_bytes);
  return run_on_stream(slot::memory_fill, device, stream, size_bytes <= kBriefBytes, [=]() -> result {
    const scoped_access write(device, dst, size_bytes, TB_MAP_WRITE);
    if (!write.opened().ok()) return write.opened();
    fill(static_cast<unsigned char*>(dst), bytes.data(), pattern_bytes, size_bytes);
    return {};
  });
}

} // namespace xcpu
