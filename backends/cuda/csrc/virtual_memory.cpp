#include "virtual_memory.h"

#include <iterator>
#include <vector>

namespace xcuda {
namespace {

CUmemAllocationProp memory_of(const device& d) {
  CUmemAllocationProp properties{};
  properties.type = kCU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {kCU_MEM_LOCATION_TYPE_DEVICE, d.handle};
  return properties;
}

CUmemAccessDesc access_of(CUdevice reader) {
  return {{kCU_MEM_LOCATION_TYPE_DEVICE, reader}, kCU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

// New memory; it is gone with the mapping, because nobody keeps the handle.
CUresult map(const device& d, CUdeviceptr at, uint64_t size_bytes) {
  const CUmemAllocationProp properties = memory_of(d);
  CUmemGenericAllocationHandle handle = 0;
  CUresult error = cu.MemCreate(&handle, size_bytes, &properties, 0);
  if (error) return error;
  error = cu.MemMap(at, size_bytes, 0, handle, 0);
  const CUresult other = cu.MemRelease(handle);
  if (!error && other) cu.MemUnmap(at, size_bytes);
  return error ? error : other;
}

// Memory is accessible to nobody at first.
CUresult give_access(const device& d, CUdeviceptr at, uint64_t size_bytes) {
  std::vector<CUmemAccessDesc> accesses{access_of(d.handle)};
  for (const CUdevice reader : d.readers) accesses.push_back(access_of(reader));
  return cu.MemSetAccess(at, size_bytes, accesses.data(), accesses.size());
}

} // namespace

uint64_t commit_granularity(const device& d) {
  int supported = 0;
  size_t bytes = 0;
  const CUmemAllocationProp properties = memory_of(d);
  cu.DeviceGetAttribute(&supported, kCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, d.handle);
  if (!supported ||
      cu.MemGetAllocationGranularity(&bytes, &properties, kCU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != kCUDA_SUCCESS)
    return 0;
  return bytes;
}

result address_reserve(int32_t device, uint64_t size_bytes, void** out_ptr) {
  xcuda::device& d = device_at(device);
  CUdeviceptr address = 0;
  result r = call_on(d, "address_reserve", [&] {
    return cu.MemAddressReserve(&address, size_bytes, d.properties.commit_granularity_bytes, 0, 0);
  });
  if (r.ok()) *out_ptr = reinterpret_cast<void*>(address);
  return r;
}

result address_release(int32_t device, void* ptr, uint64_t size_bytes) {
  return call_on(device_at(device), "address_release", [&] { return cu.MemAddressFree(address_of(ptr), size_bytes); });
}

result memory_commit(int32_t device, void* ptr, uint64_t size_bytes) {
  const outside_captures outside;
  xcuda::device& d = device_at(device);
  const CUdeviceptr at = address_of(ptr);
  return call_on(d, "memory_commit", [&] {
    if (const CUresult error = map(d, at, size_bytes)) return error;
    const std::lock_guard<std::mutex> lock(d.commit_mutex);
    const CUresult error = give_access(d, at, size_bytes);
    if (error)
      cu.MemUnmap(at, size_bytes);
    else
      d.commits[at] = size_bytes;
    return error;
  });
}

result memory_decommit(int32_t device, void* ptr, uint64_t size_bytes) {
  const outside_captures outside;
  xcuda::device& d = device_at(device);
  const CUdeviceptr at = address_of(ptr);
  const std::lock_guard<std::mutex> lock(d.commit_mutex);
  const auto found = d.commits.find(at);
  if (found == d.commits.end() || found->second != size_bytes)
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "memory_decommit: %llu bytes at %p are not what one memory_commit put there",
                   static_cast<unsigned long long>(size_bytes), ptr);
  result r = call_on(d, "memory_decommit", [&] { return cu.MemUnmap(at, size_bytes); });
  if (r.ok()) d.commits.erase(found);
  return r;
}

result open_commits(device& d, const device& reader) {
  const CUmemAccessDesc access = access_of(reader.handle);
  const std::lock_guard<std::mutex> lock(d.commit_mutex);
  for (const auto& [at, size_bytes] : d.commits)
    if (result r = check(cu.MemSetAccess(at, size_bytes, &access, 1), "cuMemSetAccess"); !r.ok()) return r;
  d.readers.insert(reader.handle);
  return {};
}

void describe_commits(const void* ptr, tb_pointer_info* info) {
  device& d = device_at(info->device);
  const std::lock_guard<std::mutex> lock(d.commit_mutex);
  auto first = d.commits.upper_bound(address_of(ptr));
  if (first == d.commits.begin()) return;
  --first;
  if (address_of(ptr) - first->first >= first->second) return;
  auto last = first;
  while (first != d.commits.begin() && std::prev(first)->first + std::prev(first)->second == first->first) --first;
  while (std::next(last) != d.commits.end() && last->first + last->second == std::next(last)->first) ++last;
  info->base = reinterpret_cast<void*>(first->first);
  info->size_bytes = last->first + last->second - first->first;
}

} // namespace xcuda
