// Addresses that are reserved, and memory that is mapped there.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "runtime.h"

namespace sim {
namespace {

constexpr uint64_t kGranularity = 2 << 20;
constexpr uint64_t kFileBytes = 1ull << 46; // sparse: of every handle of the process
constexpr int kFresh = 0xD5;                // what memory holds that nobody has written
constexpr int kHuge = 4, kNormal = 5;       // aclrtMemAttr
constexpr int kUnsupported = 207000;

// aclrtPhysicalMemProp
struct properties {
  int handle_type, allocation_type, attribute;
  uint32_t device;
  int location_type;
  uint64_t reserved;
};

// Keeps its contents while it is not mapped.
struct physical {
  device* owner = nullptr;
  uint64_t size = 0, offset = 0; // in the file
  bool is_huge = true, is_mapped = false;
};

struct mapping {
  uint64_t size = 0;
  uintptr_t handle = 0;
};

// The program's addresses, from which nobody can load, and the simulation's, of which the mapped parts have memory.
struct reservation {
  uint64_t size = 0;
  char* alias = nullptr;
  void* base = nullptr; // where the address was made a multiple
  uint64_t base_bytes = 0;
  bool is_huge = true;
  int num_mappings = 0;
  device* owner = nullptr; // of all that is mapped
};

struct address_space {
  std::mutex mutex; // guards all below
  std::map<const char*, reservation> reservations;
  std::map<const char*, mapping> mappings;
  std::map<uintptr_t, physical> memory;
  uintptr_t last = 0;
  uint64_t end = 0; // of what is used in the file
  const int file = make_file();

  static int make_file() {
    const int made = memfd_create("simulated-memory", MFD_CLOEXEC);
    if (made < 0 || ftruncate(made, static_cast<off_t>(kFileBytes)) != 0) std::abort();
    return made;
  }

  template <typename Map>
  static auto around(Map& map, const void* address) {
    const auto* at = static_cast<const char*>(address);
    auto next = map.upper_bound(at);
    if (next == map.begin()) return map.end();
    --next;
    return at < next->first + next->second.size ? next : map.end();
  }
  bool has_mapping(const char* address, uint64_t bytes) {
    const auto next = mappings.lower_bound(address);
    return around(mappings, address) != mappings.end() || (next != mappings.end() && next->first < address + bytes);
  }
  char* alias_of(const char* address) {
    const auto found = around(reservations, address);
    return found->second.alias + (address - found->first);
  }
};

address_space& space() {
  static auto& one = *new address_space;
  return one;
}

bool is_multiple(uint64_t bytes) {
  return bytes > 0 && bytes % kGranularity == 0;
}

bool is_of_a_device(const properties* p) {
  return p->handle_type == 0 && p->allocation_type == 0 && (p->attribute == kHuge || p->attribute == kNormal) &&
         p->location_type == 1 && p->reserved == 0 && device_at(static_cast<int>(p->device));
}

} // namespace

bool is_reserved(const void* ptr) {
  const std::lock_guard<std::mutex> lock(space().mutex);
  return space().around(space().reservations, ptr) != space().reservations.end();
}

char* find_mapped(const void* ptr, uint64_t size, device** out_owner) {
  address_space& s = space();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto* address = static_cast<const char*>(ptr);
  auto next = s.around(s.mappings, address);
  if (next == s.mappings.end()) return nullptr;
  const reservation& r = s.around(s.reservations, address)->second;
  const char* at = next->first;
  for (; next != s.mappings.end() && next->first == at && at < address + size; ++next) at += next->second.size;
  char* const alias = s.alias_of(address);
  if (at < address + size || alias + size > r.alias + r.size) return nullptr;
  if (out_owner) *out_owner = r.owner;
  return alias;
}

} // namespace sim

using namespace sim;

SIM_API int aclrtMemGetAllocationGranularity(const properties* of, int option, size_t* granularity) {
  if (const int error = enter("aclrtMemGetAllocationGranularity")) return error;
  if (!setting("VIRTUAL_MEMORY", 1)) return refuse(kUnsupported, "aclrtMemGetAllocationGranularity: too old a driver");
  if (!is_of_a_device(of) || option < 0 || option > 1)
    return refuse(kInvalid, "aclrtMemGetAllocationGranularity: no memory of a device, or option %d", option);
  *granularity = kGranularity;
  return kOk;
}

SIM_API int aclrtReserveMemAddress(void** ptr, size_t size, size_t alignment, void* at, uint64_t flags) {
  if (const int error = enter("aclrtReserveMemAddress")) return error;
  if (size == 0 || alignment || at || flags > 1)
    return refuse(kInvalid, "aclrtReserveMemAddress of %zu bytes, alignment %zu", size, alignment);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const uint64_t base_bytes = size + 4 * kGranularity;
  void* base = mmap(nullptr, base_bytes, PROT_NONE, kFlags, -1, 0);
  void* alias = mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
  if (base == MAP_FAILED || alias == MAP_FAILED) {
    if (base != MAP_FAILED) munmap(base, base_bytes);
    return refuse(kOutOfMemory, "aclrtReserveMemAddress: no room for %zu bytes", size);
  }
  // an odd multiple: no better aligned than is promised
  const uint64_t steps = reinterpret_cast<uintptr_t>(base) / kGranularity + 1;
  auto* address = reinterpret_cast<char*>((steps | 1) * kGranularity);
  *ptr = address;
  const std::lock_guard<std::mutex> lock(space().mutex);
  space().reservations[address] = {size, static_cast<char*>(alias), base, base_bytes, flags == 1, 0, nullptr};
  return kOk;
}

SIM_API int aclrtReleaseMemAddress(void* ptr) {
  if (const int error = enter("aclrtReleaseMemAddress")) return error;
  const std::lock_guard<std::mutex> lock(space().mutex);
  const auto found = space().reservations.find(static_cast<char*>(ptr));
  if (found == space().reservations.end()) return refuse(kInvalid, "aclrtReleaseMemAddress: no reservation there");
  const reservation& r = found->second;
  if (r.num_mappings > 0) return refuse(kInvalid, "aclrtReleaseMemAddress: memory is mapped there");
  munmap(r.alias, r.size);
  munmap(r.base, r.base_bytes);
  space().reservations.erase(found);
  return kOk;
}

SIM_API int aclrtMallocPhysical(void** handle, size_t size, const properties* of, uint64_t flags) {
  if (const int error = enter("aclrtMallocPhysical")) return error;
  if (!is_multiple(size) || !is_of_a_device(of) || flags)
    return refuse(kInvalid, "aclrtMallocPhysical of %zu bytes, attribute %d of device %u", size, of->attribute,
                  of->device);
  device* owner = device_at(static_cast<int>(of->device));
  address_space& s = space();
  const std::lock_guard<std::mutex> lock(s.mutex);
  char fresh[4096];
  std::memset(fresh, kFresh, sizeof fresh);
  if (pwrite(s.file, fresh, sizeof fresh, static_cast<off_t>(s.end)) != sizeof fresh)
    return refuse(kOutOfMemory, "aclrtMallocPhysical: the host has no %zu bytes", size);
  const std::lock_guard<std::mutex> owner_lock(owner->mutex);
  if (!owner->memory.take(size)) return refuse(kOutOfMemory, "aclrtMallocPhysical: no %zu bytes are free", size);
  s.memory[++s.last] = {owner, size, s.end, of->attribute == kHuge, false};
  s.end += size;
  *handle = reinterpret_cast<void*>(s.last);
  return kOk;
}

SIM_API int aclrtFreePhysical(void* handle) {
  if (const int error = enter("aclrtFreePhysical")) return error;
  address_space& s = space();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.memory.find(reinterpret_cast<uintptr_t>(handle));
  if (found == s.memory.end()) return refuse(kInvalid, "aclrtFreePhysical: not a handle");
  const physical& p = found->second;
  if (p.is_mapped) return refuse(kInvalid, "aclrtFreePhysical: the memory is mapped");
  fallocate(s.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(p.offset),
            static_cast<off_t>(p.size));
  {
    const std::lock_guard<std::mutex> owner_lock(p.owner->mutex);
    p.owner->memory.give(p.size);
  }
  s.memory.erase(found);
  return kOk;
}

SIM_API int aclrtMapMem(void* ptr, size_t size, size_t offset, void* handle, uint64_t flags) {
  if (const int error = enter("aclrtMapMem")) return error;
  address_space& s = space();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto* address = static_cast<const char*>(ptr);
  const auto memory = s.memory.find(reinterpret_cast<uintptr_t>(handle));
  if (memory == s.memory.end()) return refuse(kInvalid, "aclrtMapMem: not a handle");
  physical& p = memory->second;
  if (offset || flags || p.size != size || p.is_mapped)
    return refuse(kInvalid, "aclrtMapMem of %zu bytes: a part, or mapped elsewhere", size);
  const auto found = s.around(s.reservations, address);
  if (found == s.reservations.end() || address + size > found->first + found->second.size ||
      reinterpret_cast<uintptr_t>(address) % kGranularity)
    return refuse(kInvalid, "aclrtMapMem: not in a reservation, or not aligned");
  reservation& r = found->second;
  if (s.has_mapping(address, size)) return refuse(kInvalid, "aclrtMapMem: mapped already");
  if (r.is_huge != p.is_huge) return refuse(kInvalid, "aclrtMapMem: addresses are for pages of another size");
  if (r.num_mappings > 0 && r.owner != p.owner)
    return refuse(kInvalid, "aclrtMapMem: memory of two devices in one reservation");
  if (mmap(s.alias_of(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, s.file,
           static_cast<off_t>(p.offset)) == MAP_FAILED)
    return refuse(kOutOfMemory, "aclrtMapMem: the host has no %zu bytes", size);
  p.is_mapped = true;
  r.owner = p.owner;
  ++r.num_mappings;
  s.mappings[address] = {size, memory->first};
  return kOk;
}

SIM_API int aclrtUnmapMem(void* ptr) {
  if (const int error = enter("aclrtUnmapMem")) return error;
  address_space& s = space();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.mappings.find(static_cast<const char*>(ptr));
  if (found == s.mappings.end()) return refuse(kInvalid, "aclrtUnmapMem: nothing is mapped that begins there");
  mmap(s.alias_of(found->first), found->second.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  s.memory.at(found->second.handle).is_mapped = false;
  --s.around(s.reservations, ptr)->second.num_mappings;
  s.mappings.erase(found);
  return kOk;
}
