#include <algorithm>
#include <cstring>

#include "device.h"
#include "graph.h"
#include "result.h"
#include "stream.h"
#include "virtual_memory.h"

namespace xcuda {
namespace {

result check_kind(const char* what, uint32_t kind) {
  if (kind == TB_MEMORY_DEVICE || kind == TB_MEMORY_HOST) return {};
  return failure(TB_STATUS_UNSUPPORTED, "%s: xcuda has no memory of kind %u", what, kind);
}

// What the driver has a range of; a kind of UNKNOWN if it is not the beginning of one.
tb_pointer_info describe(const void* ptr, CUmemoryPool* out_pool) {
  int attributes[] = {kCU_POINTER_ATTRIBUTE_MEMORY_TYPE, kCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                      kCU_POINTER_ATTRIBUTE_RANGE_START_ADDR, kCU_POINTER_ATTRIBUTE_RANGE_SIZE,
                      kCU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  unsigned type = 0;
  int ordinal = -1;
  CUdeviceptr base = 0;
  size_t size = 0;
  void* values[] = {&type, &ordinal, &base, &size, out_pool};
  tb_pointer_info info{sizeof info, TB_MEMORY_UNKNOWN, -1, nullptr, 0};
  if (cu.PointerGetAttributes(5, attributes, values, address_of(ptr)) != kCUDA_SUCCESS) return info;
  if (type == kCU_MEMORYTYPE_DEVICE) info.kind = TB_MEMORY_DEVICE;
  if (type == kCU_MEMORYTYPE_HOST) info.kind = TB_MEMORY_HOST;
  if (info.kind == TB_MEMORY_UNKNOWN) return info;
  info.device = ordinal;
  info.base = reinterpret_cast<void*>(base);
  info.size_bytes = size;
  return info;
}

// A captured stream would record an allocation of the graph's own, which is gone when the graph has run.
CUresult allocate(device& d, CUdeviceptr* out_address, uint64_t size_bytes, CUstream on) {
  return d.pool && !is_captured(on) ? cu.MemAllocAsync(out_address, size_bytes, on)
                                    : cu.MemAlloc(out_address, size_bytes);
}

} // namespace

result memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream* stream, void** out_ptr) {
  if (result r = check_kind("memory_allocate", kind); !r.ok()) return r;
  if (size_bytes == 0) return failure(TB_STATUS_INVALID_ARGUMENT, "memory_allocate: 0 bytes");
  const outside_captures outside;
  xcuda::device& d = device_at(device);
  CUdeviceptr address = 0;
  void* host_address = nullptr;
  result r = call_on(d, "memory_allocate", [&] {
    return kind == TB_MEMORY_DEVICE ? allocate(d, &address, size_bytes, handle_of(stream))
                                    : cu.MemHostAlloc(&host_address, size_bytes, kCU_MEMHOSTALLOC_PORTABLE);
  });
  if (r.ok()) *out_ptr = kind == TB_MEMORY_DEVICE ? reinterpret_cast<void*>(address) : host_address;
  return r;
}

result memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream* stream) {
  if (result r = check_kind("memory_free", kind); !r.ok()) return r;
  CUmemoryPool pool = nullptr;
  const tb_pointer_info found = describe(ptr, &pool);
  if (found.kind != kind || found.base != ptr || found.device != device)
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "memory_free: device %d has no allocation of kind %u at %p with %llu bytes", device, kind, ptr,
                   static_cast<unsigned long long>(size_bytes));
  const outside_captures outside;
  xcuda::device& d = device_at(device);
  const context_scope scope(d);
  if (!scope.failure().ok()) return scope.failure();
  if (kind == TB_MEMORY_HOST) return check(cu.MemFreeHost(ptr), "memory_free");
  const CUstream on = handle_of(stream);
  if (pool && !is_captured(on)) return check(cu.MemFreeAsync(address_of(ptr), on), "memory_free");
  if (d.pool) // in stream order the core has not waited
    if (result r = wait_for_streams(device, "memory_free"); !r.ok()) return r;
  return check(cu.MemFree(address_of(ptr)), "memory_free");
}

// What the pool holds and nobody uses is free: it goes back to the driver when somebody waits for a stream.
result memory_info(int32_t device, uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  xcuda::device& d = device_at(device);
  size_t free_bytes = 0, total_bytes = 0;
  uint64_t held = 0, used = 0;
  result r = call_on(d, "memory_info", [&] {
    const CUresult error = cu.MemGetInfo(&free_bytes, &total_bytes);
    if (!d.pool || error) return error;
    const CUresult other = cu.MemPoolGetAttribute(d.pool, kCU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    return other ? other : cu.MemPoolGetAttribute(d.pool, kCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held);
  });
  if (!r.ok()) return r;
  *out_free_bytes = std::min<uint64_t>(free_bytes + held - std::min(used, held), total_bytes);
  *out_total_bytes = total_bytes;
  return r;
}

result memory_query(const void* ptr, tb_pointer_info* out_info) {
  const uint64_t size = std::min<uint64_t>(out_info->struct_size, sizeof(tb_pointer_info));
  CUmemoryPool pool = nullptr;
  tb_pointer_info info = describe(ptr, &pool);
  if (info.kind == TB_MEMORY_DEVICE) describe_commits(ptr, &info);
  info.struct_size = size;
  std::memcpy(out_info, &info, size);
  return {};
}

result host_register(void* ptr, uint64_t size_bytes) {
  const outside_captures outside;
  return call_on(device_at(0), "host_register",
                 [&] { return cu.MemHostRegister(ptr, size_bytes, kCU_MEMHOSTREGISTER_PORTABLE); });
}

result host_unregister(void* ptr) {
  const outside_captures outside;
  return call_on(device_at(0), "host_unregister", [&] { return cu.MemHostUnregister(ptr); });
}

} // namespace xcuda
