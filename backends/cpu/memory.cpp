#include "memory.h"

#include <algorithm>
#include <cstring>

#include "allocation.h"
#include "options.h"

namespace xcpu {

result memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream*, void** out_ptr) {
  if (kind != TB_MEMORY_DEVICE && kind != TB_MEMORY_HOST)
    return failure(TB_STATUS_UNSUPPORTED, "xcpu has no memory of kind %u", kind);
  if (size_bytes == 0) return failure(TB_STATUS_INVALID_ARGUMENT, "memory_allocate: 0 bytes");
  return allocation_create(device, kind, size_bytes, out_ptr);
}

result memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream*) {
  return allocation_destroy({ptr, size_bytes, kind, device});
}

result memory_info(int32_t device, uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  *out_total_bytes = settings().memory_bytes;
  *out_free_bytes = settings().memory_bytes - allocated_bytes(device);
  return {};
}

result memory_query(const void* ptr, tb_pointer_info* out_info) {
  const uint64_t size = std::min<uint64_t>(out_info->struct_size, sizeof(tb_pointer_info));
  tb_pointer_info info{size, TB_MEMORY_UNKNOWN, -1, nullptr, 0};
  allocation found;
  if (allocation_find(ptr, &found)) info = {size, found.kind, found.device, found.base, found.size_bytes};
  std::memcpy(out_info, &info, size);
  return {};
}

result address_reserve(int32_t device, uint64_t size_bytes, void** out_ptr) {
  return reservation_create(device, size_bytes, out_ptr);
}

result address_release(int32_t device, void* ptr, uint64_t size_bytes) {
  return reservation_destroy(device, ptr, size_bytes);
}

result memory_commit(int32_t device, void* ptr, uint64_t size_bytes) {
  return reservation_commit(device, ptr, size_bytes);
}

result memory_decommit(int32_t device, void* ptr, uint64_t size_bytes) {
  return reservation_decommit(device, ptr, size_bytes);
}

static result check_access(uint32_t access) {
  if (access != 0 && (access & ~(TB_MAP_READ | TB_MAP_WRITE)) == 0) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "access %u is neither TB_MAP_READ nor TB_MAP_WRITE nor both", access);
}

result memory_map(int32_t device, void* ptr, uint64_t size_bytes, uint32_t access) {
  result r = check_access(access);
  return r.ok() ? access_begin(device, ptr, size_bytes, access) : r;
}

result memory_unmap(int32_t device, void* ptr, uint64_t size_bytes, uint32_t access) {
  result r = check_access(access);
  return r.ok() ? access_end(device, ptr, size_bytes, access) : r;
}

result ipc_export(int32_t device, void* ptr, tb_ipc_handle* out_handle) {
  return allocation_export(device, ptr, out_handle);
}

result ipc_import(int32_t device, const tb_ipc_handle* handle, void** out_ptr) {
  return allocation_import(device, *handle, out_ptr);
}

result ipc_close(int32_t device, void* ptr) {
  return allocation_close(device, ptr);
}

} // namespace xcpu
