// Addresses that are reserved, and memory that is mapped there.
#include <sys/mman.h>

#include <cstring>

#include "driver.h"

namespace sim {
namespace {

constexpr uint64_t kGranularity = 2 << 20;
constexpr int kFresh = 0xD5; // what memory holds that nobody has written

struct physical {
  CUcontext owner = nullptr;
  uint64_t size = 0;
  bool is_released = false, is_mapped = false;
};

struct mapping {
  uint64_t size = 0;
  CUmemGenericAllocationHandle handle = 0;
  std::set<int> readers; // nobody until cuMemSetAccess
};

// The program's addresses, from which nobody can load, and the simulation's, of which the mapped parts have memory.
struct reservation {
  uint64_t size = 0;
  char* alias = nullptr;
  void* base = nullptr; // where the address was made a multiple
  uint64_t base_bytes = 0;
};

struct address_space {
  std::mutex mutex; // guards all below
  std::map<CUdeviceptr, reservation> reservations;
  std::map<CUdeviceptr, mapping> mappings;
  std::map<CUmemGenericAllocationHandle, physical> memory;
  CUmemGenericAllocationHandle last = 0;

  template <typename Map>
  static auto around(Map& map, CUdeviceptr address) {
    auto next = map.upper_bound(address);
    if (next == map.begin()) return map.end();
    --next;
    return address < next->first + next->second.size ? next : map.end();
  }
  bool has_mapping(CUdeviceptr address, uint64_t bytes) {
    const auto next = mappings.lower_bound(address);
    return around(mappings, address) != mappings.end() || (next != mappings.end() && next->first < address + bytes);
  }
  // Whether mappings fill it, none of which goes beyond.
  bool is_filled(CUdeviceptr address, uint64_t bytes) {
    CUdeviceptr at = address;
    for (auto next = mappings.find(at); next != mappings.end() && at < address + bytes; next = mappings.find(at))
      at += next->second.size;
    return bytes > 0 && at == address + bytes;
  }
  char* alias_of(CUdeviceptr address) {
    const auto found = around(reservations, address);
    return found->second.alias + (address - found->first);
  }
  // Memory is the device's again when it has neither a handle nor a mapping.
  void give_back(std::map<CUmemGenericAllocationHandle, physical>::iterator found) {
    if (!found->second.is_released || found->second.is_mapped) return;
    {
      const std::lock_guard<std::mutex> lock(found->second.owner->mutex);
      found->second.owner->memory->give(found->second.size);
    }
    memory.erase(found);
  }
};

address_space& space() {
  static auto& one = *new address_space;
  return one;
}

bool is_multiple(uint64_t bytes) {
  return bytes > 0 && bytes % kGranularity == 0;
}

bool is_of_a_device(const CUmemAllocationProp* p) {
  return p->type == kCU_MEM_ALLOCATION_TYPE_PINNED && p->requestedHandleTypes == 0 &&
         p->location.type == kCU_MEM_LOCATION_TYPE_DEVICE && p->location.id >= 0 && p->location.id < device_count();
}

} // namespace

mapped_memory find_mapped(CUdeviceptr address, size_t bytes, int reader) {
  address_space& s = space();
  const std::lock_guard<std::mutex> lock(s.mutex);
  mapped_memory found;
  const auto reserved = s.around(s.reservations, address);
  found.is_reserved = reserved != s.reservations.end();
  auto next = s.around(s.mappings, address);
  if (next == s.mappings.end()) return found;
  found.owner = s.memory.at(next->second.handle).owner;
  found.base = reserved->first;
  found.size = reserved->second.size;
  CUdeviceptr at = next->first;
  for (; next != s.mappings.end() && next->first == at && next->second.readers.count(reader); ++next) {
    at += next->second.size;
    if (at >= address + bytes) {
      found.alias = s.alias_of(address);
      break;
    }
  }
  return found;
}

} // namespace sim

using namespace sim;

CU_API cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties, int option) {
  if (const int error = enter_free("cuMemGetAllocationGranularity")) return error;
  if (!is_of_a_device(properties) || option < 0 || option > 1)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemGetAllocationGranularity: no memory of a device");
  if (!setting("VIRTUAL_MEMORY", 1)) return refuse(kCUDA_ERROR_NOT_SUPPORTED, "cuMemGetAllocationGranularity");
  *granularity = kGranularity;
  return 0;
}

CU_API cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr at,
                           unsigned long long flags) {
  if (const int error = enter_free("cuMemAddressReserve")) return error;
  if (!is_multiple(bytes) || (alignment & (alignment - 1)) || at || flags)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemAddressReserve of %zu bytes, aligned to %zu", bytes, alignment);
  const uint64_t aligned_to = std::max<uint64_t>(alignment, kGranularity);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* base = mmap(nullptr, bytes + aligned_to, PROT_NONE, kFlags, -1, 0);
  void* alias = mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
  if (base == MAP_FAILED || alias == MAP_FAILED)
    return refuse(kCUDA_ERROR_OUT_OF_MEMORY, "cuMemAddressReserve: no room for %zu bytes", bytes);
  *address = (address_of(base) + aligned_to - 1) / aligned_to * aligned_to;
  const std::lock_guard<std::mutex> lock(space().mutex);
  space().reservations[*address] = {bytes, static_cast<char*>(alias), base, bytes + aligned_to};
  return 0;
}

CU_API cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  if (const int error = enter_free("cuMemAddressFree")) return error;
  const std::lock_guard<std::mutex> lock(space().mutex);
  const auto found = space().reservations.find(address);
  if (found == space().reservations.end() || found->second.size != bytes)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemAddressFree: no reservation of %zu bytes", bytes);
  if (space().has_mapping(address, bytes))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemAddressFree: memory is mapped there");
  munmap(found->second.alias, bytes);
  munmap(found->second.base, found->second.base_bytes);
  space().reservations.erase(found);
  return 0;
}

CU_API cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                   unsigned long long flags) {
  if (const int error = enter_free("cuMemCreate")) return error;
  if (const int error = refuse_unsafe("cuMemCreate")) return error;
  if (!is_multiple(bytes) || !is_of_a_device(properties) || flags)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemCreate of %zu bytes, type %d of device %d", bytes, properties->type,
                  properties->location.id);
  CUcontext owner = context_of(properties->location.id);
  {
    const std::lock_guard<std::mutex> lock(owner->mutex);
    if (!owner->memory->take(bytes))
      return refuse(kCUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate: no %zu bytes are free", bytes);
  }
  const std::lock_guard<std::mutex> lock(space().mutex);
  *handle = ++space().last;
  space().memory[*handle] = {owner, bytes, false, false};
  return 0;
}

CU_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (const int error = enter_free("cuMemRelease")) return error;
  const std::lock_guard<std::mutex> lock(space().mutex);
  const auto found = space().memory.find(handle);
  if (found == space().memory.end() || found->second.is_released)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemRelease: not a handle");
  found->second.is_released = true;
  space().give_back(found);
  return 0;
}

CU_API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                unsigned long long flags) {
  if (const int error = enter_free("cuMemMap")) return error;
  if (const int error = refuse_unsafe("cuMemMap")) return error;
  const std::lock_guard<std::mutex> lock(space().mutex);
  const auto memory = space().memory.find(handle);
  if (memory == space().memory.end() || memory->second.is_released)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemMap: not a handle");
  if (offset || flags || memory->second.size != bytes || memory->second.is_mapped)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemMap of a part, or of what is mapped elsewhere");
  const auto reserved = space().around(space().reservations, address);
  if (reserved == space().reservations.end() || address + bytes > reserved->first + reserved->second.size ||
      address % kGranularity)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemMap: not in a reservation, or not aligned");
  if (space().has_mapping(address, bytes)) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemMap: mapped already");
  char* alias = space().alias_of(address);
  if (mprotect(alias, bytes, PROT_READ | PROT_WRITE) != 0)
    return refuse(kCUDA_ERROR_OUT_OF_MEMORY, "cuMemMap: the host has no %zu bytes", bytes);
  std::memset(alias, kFresh, 4096);
  memory->second.is_mapped = true;
  space().mappings[address] = {bytes, handle, {}};
  return 0;
}

CU_API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses, size_t count) {
  if (const int error = enter_free("cuMemSetAccess")) return error;
  if (const int error = refuse_unsafe("cuMemSetAccess")) return error;
  const std::lock_guard<std::mutex> lock(space().mutex);
  if (!space().is_filled(address, bytes))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemSetAccess of what is not mapped, or of a part");
  for (const CUmemAccessDesc* each = accesses; each != accesses + count; ++each) {
    const auto [type, id] = each->location;
    const int owner = space().memory.at(space().mappings.at(address).handle).owner->device;
    if (type != kCU_MEM_LOCATION_TYPE_DEVICE || id < 0 || id >= device_count() ||
        each->flags != kCU_MEM_ACCESS_FLAGS_PROT_READWRITE || (id != owner && !setting("PEERS", 1)))
      return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemSetAccess: location %d %d with flags %d", type, id, each->flags);
    for (auto next = space().mappings.find(address); next != space().mappings.end() && next->first < address + bytes;
         ++next)
      next->second.readers.insert(id);
  }
  return 0;
}

CU_API cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (const int error = enter_free("cuMemUnmap")) return error;
  if (const int error = refuse_unsafe("cuMemUnmap")) return error;
  const std::lock_guard<std::mutex> lock(space().mutex);
  if (!space().is_filled(address, bytes))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemUnmap of what is not mapped, or of a part of a mapping");
  mmap(space().alias_of(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  for (auto next = space().mappings.find(address); next != space().mappings.end() && next->first < address + bytes;) {
    const auto memory = space().memory.find(next->second.handle);
    memory->second.is_mapped = false;
    space().give_back(memory);
    next = space().mappings.erase(next);
  }
  return 0;
}
