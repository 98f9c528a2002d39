#include "allocation.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "torch_backend/address_map.h"

namespace ocl {
namespace {

struct registry {
  std::shared_mutex mutex; // guards map
  tb_address_map map{};    // handles are allocation*
};

registry& all() {
  static auto& r = *new registry;
  return r;
}

// ---- one allocation, not in the registry yet ----

result create_buffer(allocation* a, cl_mem_flags flags, void* host_ptr) {
  cl_int error = CL_SUCCESS;
  a->buffer = cl.CreateBuffer(a->owner.context, CL_MEM_READ_WRITE | flags, a->size_bytes, host_ptr, &error);
  result r = check(error, "clCreateBuffer");
  if (error == CL_INVALID_BUFFER_SIZE || error == CL_OUT_OF_RESOURCES) r.status = TB_STATUS_OUT_OF_MEMORY;
  return r;
}

// Many drivers allocate when memory is first used, which is too late to say that there is none.
result make_resident(const allocation& a) {
  cl_event done = nullptr;
  cl_int error = cl.EnqueueMigrateMemObjects(a.owner.service, 1, &a.buffer, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                             nullptr, &done);
  if (error == CL_SUCCESS) {
    error = cl.WaitForEvents(1, &done);
    cl.ReleaseEvent(done);
  }
  result r = check(error, "clEnqueueMigrateMemObjects");
  if (!r.ok() && r.status != TB_STATUS_DEVICE_LOST) r.status = TB_STATUS_OUT_OF_MEMORY;
  return r;
}

result create_shared(allocation* a) {
  a->base = cl.SVMAlloc(a->owner.context, CL_MEM_READ_WRITE, a->size_bytes, 0);
  if (!a->base)
    return failure(TB_STATUS_OUT_OF_MEMORY, "clSVMAlloc has no %llu bytes", (unsigned long long)a->size_bytes);
  return create_buffer(a, CL_MEM_USE_HOST_PTR, a->base);
}

result create_under_addresses(allocation* a) {
  result r = create_buffer(a, 0, nullptr);
  if (r.ok()) r = make_resident(*a);
  if (!r.ok()) return r;
  a->base = tb_address_reserve(a->size_bytes);
  return a->base ? r
                 : failure(TB_STATUS_OUT_OF_MEMORY, "no %llu addresses are left to reserve",
                           (unsigned long long)a->size_bytes);
}

result create_mapped(allocation* a) {
  result r = create_buffer(a, CL_MEM_ALLOC_HOST_PTR, nullptr);
  if (!r.ok()) return r;
  cl_int error = CL_SUCCESS;
  a->base = cl.EnqueueMapBuffer(a->owner.service, a->buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, a->size_bytes, 0,
                                nullptr, nullptr, &error);
  return check(error, "clEnqueueMapBuffer");
}

result create(allocation* a) {
  if (a->kind == TB_MEMORY_HOST) return create_mapped(a);
  return a->owner.svm ? create_shared(a) : create_under_addresses(a);
}

// Also of what create has left behind.
void destroy(const allocation& a) {
  if (a.kind == TB_MEMORY_HOST && a.base) {
    cl_event done = nullptr;
    if (cl.EnqueueUnmapMemObject(a.owner.service, a.buffer, a.base, 0, nullptr, &done) == CL_SUCCESS) {
      cl.WaitForEvents(1, &done);
      cl.ReleaseEvent(done);
    }
  }
  if (a.buffer) cl.ReleaseMemObject(a.buffer);
  if (a.kind == TB_MEMORY_HOST || !a.base) return;
  if (a.owner.svm)
    cl.SVMFree(a.owner.context, a.base);
  else
    tb_address_release(a.base, a.size_bytes);
}

// Counts device memory against the device's, which drivers on hosts do not.
bool reserve(const allocation& a) {
  if (a.kind != TB_MEMORY_DEVICE) return true;
  const uint64_t total = a.owner.properties.total_memory_bytes;
  uint64_t used = a.owner.allocated_bytes.load();
  do
    if (a.size_bytes > total - used) return false;
  while (!a.owner.allocated_bytes.compare_exchange_weak(used, used + a.size_bytes));
  return true;
}

void give_back(const allocation& a) {
  if (a.kind == TB_MEMORY_DEVICE) a.owner.allocated_bytes -= a.size_bytes;
}

} // namespace

lookup::lookup() : lock_(all().mutex) {}

const allocation* lookup::find(const void* ptr) const {
  const tb_address_range* range = tb_address_map_find(&all().map, ptr);
  return range ? static_cast<const allocation*>(range->handle) : nullptr;
}

result lookup::find(const char* what, const void* ptr, uint64_t size_bytes, const allocation** out_allocation) const {
  const allocation* a = find(ptr);
  if (!a || size_bytes > a->size_bytes - a->offset_of(ptr))
    return failure(TB_STATUS_INVALID_ARGUMENT, "%s: %p with %llu bytes is not in one allocation of this device library",
                   what, ptr, (unsigned long long)size_bytes);
  *out_allocation = a;
  return {};
}

result memory_allocate(int32_t device, uint32_t kind, uint64_t size_bytes, tb_stream*, void** out_ptr) {
  if (kind != TB_MEMORY_DEVICE && kind != TB_MEMORY_HOST)
    return failure(TB_STATUS_UNSUPPORTED, "ocl has no memory of kind %u", kind);
  if (size_bytes == 0) return failure(TB_STATUS_INVALID_ARGUMENT, "memory_allocate: 0 bytes");
  ocl::device& d = device_at(device);
  auto a = std::make_unique<allocation>(allocation{d, kind, nullptr, size_bytes, nullptr});
  if (!reserve(*a))
    return failure(TB_STATUS_OUT_OF_MEMORY, "%llu bytes of the device's %llu are in use, and %llu were asked for",
                   (unsigned long long)d.allocated_bytes.load(), (unsigned long long)d.properties.total_memory_bytes,
                   (unsigned long long)size_bytes);
  result r = create(a.get());
  if (r.ok()) {
    const std::lock_guard<std::shared_mutex> lock(all().mutex);
    if (!tb_address_map_insert(&all().map, a->base, size_bytes, a.get()))
      r = failure(TB_STATUS_OUT_OF_MEMORY, "the host has no memory for the map of addresses");
  }
  if (!r.ok()) {
    destroy(*a);
    give_back(*a);
    return r;
  }
  *out_ptr = a.release()->base;
  return r;
}

result memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size_bytes, tb_stream*) {
  std::unique_ptr<const allocation> a;
  {
    const std::lock_guard<std::shared_mutex> lock(all().mutex);
    const tb_address_range* range = tb_address_map_find(&all().map, ptr);
    const auto* found = range ? static_cast<const allocation*>(range->handle) : nullptr;
    if (!found || found->base != ptr || found->size_bytes != size_bytes || found->kind != kind ||
        found->owner.index != device)
      return failure(TB_STATUS_INVALID_ARGUMENT,
                     "memory_free: device %d has no allocation of kind %u at %p with %llu bytes", device, kind, ptr,
                     (unsigned long long)size_bytes);
    tb_address_map_remove(&all().map, ptr);
    a.reset(found);
  }
  destroy(*a);
  give_back(*a);
  return {};
}

result memory_info(int32_t device, uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  const ocl::device& d = device_at(device);
  *out_total_bytes = d.properties.total_memory_bytes;
  *out_free_bytes = d.properties.total_memory_bytes - d.allocated_bytes.load();
  return {};
}

result memory_query(const void* ptr, tb_pointer_info* out_info) {
  const uint64_t size = std::min<uint64_t>(out_info->struct_size, sizeof(tb_pointer_info));
  tb_pointer_info info{size, TB_MEMORY_UNKNOWN, -1, nullptr, 0};
  {
    const lookup addresses;
    if (const allocation* a = addresses.find(ptr)) info = {size, a->kind, a->owner.index, a->base, a->size_bytes};
  }
  std::memcpy(out_info, &info, size);
  return {};
}

} // namespace ocl
