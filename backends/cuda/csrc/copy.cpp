#include <cstring>

#include "device.h"
#include "graph.h"
#include "result.h"
#include "stream.h"

namespace xcuda {
namespace {

constexpr uint32_t kWordBytes = 4;

bool is_known(uint32_t kind) {
  return kind >= TB_COPY_HOST_TO_DEVICE && kind <= TB_COPY_PEER;
}

result copy_to_peer(device& to, void* dst, device& from, const void* src, uint64_t size, CUstream stream) {
  result r;
  CUcontext there = context_of(to, &r), here = r.ok() ? context_of(from, &r) : nullptr;
  if (r.ok()) r = enable_peer(from, to);
  if (!r.ok()) return r;
  return call_on(from, "memory_copy",
                 [&] { return cu.MemcpyPeerAsync(address_of(dst), there, address_of(src), here, size, stream); });
}

// What comes from pageable memory is read by the call itself, whatever the stream still has to do before.
result wait_if_pageable(device& d, const void* src, tb_stream* stream) {
  int attribute = kCU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  unsigned type = 0;
  void* value = &type;
  if (cu.PointerGetAttributes(1, &attribute, &value, address_of(src)) == kCUDA_SUCCESS && type == kCU_MEMORYTYPE_HOST)
    return {};
  return call_on(d, "memory_copy", [&] {
    return is_captured(handle_of(stream)) ? kCUDA_SUCCESS : cu.StreamSynchronize(handle_of(stream));
  });
}

// Every word of the pattern in a fill of its own, of a column.
CUresult fill_columns(CUdeviceptr dst, const void* pattern, uint32_t pattern_bytes, uint64_t size, CUstream stream) {
  CUresult error = kCUDA_SUCCESS;
  for (uint32_t at = 0; error == kCUDA_SUCCESS && at < pattern_bytes; at += kWordBytes) {
    uint32_t word = 0;
    std::memcpy(&word, static_cast<const char*>(pattern) + at, sizeof word);
    error = cu.MemsetD2D32Async(dst + at, pattern_bytes, word, 1, size / pattern_bytes, stream);
  }
  return error;
}

CUresult fill(CUdeviceptr dst, const void* pattern, uint32_t pattern_bytes, uint64_t size, CUstream stream) {
  uint8_t byte = 0;
  uint16_t half = 0;
  uint32_t word = 0;
  switch (pattern_bytes) {
    case sizeof byte:
      std::memcpy(&byte, pattern, sizeof byte);
      return cu.MemsetD8Async(dst, byte, size, stream);
    case sizeof half:
      std::memcpy(&half, pattern, sizeof half);
      return cu.MemsetD16Async(dst, half, size / sizeof half, stream);
    case sizeof word:
      std::memcpy(&word, pattern, sizeof word);
      return cu.MemsetD32Async(dst, word, size / sizeof word, stream);
    default:
      return fill_columns(dst, pattern, pattern_bytes, size, stream);
  }
}

// Larger patterns that are one word over and over, zeros mostly, are one fill.
uint32_t shortest(const void* pattern, uint32_t pattern_bytes) {
  const char* bytes = static_cast<const char*>(pattern);
  const bool repeats =
      pattern_bytes > kWordBytes && std::memcmp(bytes, bytes + kWordBytes, pattern_bytes - kWordBytes) == 0;
  return repeats ? kWordBytes : pattern_bytes;
}

} // namespace

result memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                   uint32_t kind, tb_stream* stream) {
  if (!is_known(kind)) return failure(TB_STATUS_UNSUPPORTED, "memory_copy: copies of kind %u are not offered", kind);
  const bool of_source = kind == TB_COPY_DEVICE_TO_HOST || kind == TB_COPY_PEER;
  device& d = device_at(of_source ? src_device : dst_device);
  const CUstream on = handle_of(stream);
  if (kind == TB_COPY_PEER) return copy_to_peer(device_at(dst_device), dst, d, src, size_bytes, on);
  if (kind == TB_COPY_HOST_TO_DEVICE)
    if (result r = wait_if_pageable(d, src, stream); !r.ok()) return r;
  return call_on(d, "memory_copy", [&] {
    if (kind == TB_COPY_HOST_TO_DEVICE) return cu.MemcpyHtoDAsync(address_of(dst), src, size_bytes, on);
    if (kind == TB_COPY_DEVICE_TO_HOST) return cu.MemcpyDtoHAsync(dst, address_of(src), size_bytes, on);
    return cu.MemcpyDtoDAsync(address_of(dst), address_of(src), size_bytes, on);
  });
}

result memory_copy_2d(int32_t device, void* dst, uint64_t dst_pitch_bytes, const void* src, uint64_t src_pitch_bytes,
                      uint64_t width_bytes, uint64_t height, uint32_t kind, tb_stream* stream) {
  if (!is_known(kind) || kind == TB_COPY_PEER)
    return failure(TB_STATUS_UNSUPPORTED, "memory_copy_2d: copies of kind %u are not offered", kind);
  xcuda::device& d = device_at(device);
  if (dst_pitch_bytes > d.max_pitch_bytes || src_pitch_bytes > d.max_pitch_bytes) return {TB_STATUS_UNSUPPORTED, ""};
  if (kind == TB_COPY_HOST_TO_DEVICE)
    if (result r = wait_if_pageable(d, src, stream); !r.ok()) return r;
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = kind == TB_COPY_HOST_TO_DEVICE ? kCU_MEMORYTYPE_HOST : kCU_MEMORYTYPE_DEVICE;
  copy.srcHost = src;
  copy.srcDevice = address_of(src);
  copy.srcPitch = src_pitch_bytes;
  copy.dstMemoryType = kind == TB_COPY_DEVICE_TO_HOST ? kCU_MEMORYTYPE_HOST : kCU_MEMORYTYPE_DEVICE;
  copy.dstHost = dst;
  copy.dstDevice = address_of(dst);
  copy.dstPitch = dst_pitch_bytes;
  copy.WidthInBytes = width_bytes;
  copy.Height = height;
  return call_on(d, "memory_copy_2d", [&] { return cu.Memcpy2DAsync(&copy, handle_of(stream)); });
}

result memory_fill(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                   tb_stream* stream) {
  return call_on(device_at(device), "memory_fill", [&] {
    return fill(address_of(dst), pattern, shortest(pattern, pattern_bytes), size_bytes, handle_of(stream));
  });
}

} // namespace xcuda
