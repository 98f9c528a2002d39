#include "allocation.h"

#include <array>
#include <map>
#include <mutex>

#include "options.h"
#include "region.h"
#include "shared_memory.h"

namespace xcpu {
namespace {

struct entry {
  allocation info;
  std::map<uintptr_t, uint64_t> commits; // of a reservation: what has memory, by address
  bool reserved = false;
  uint64_t offset = 0;               // shared memory: in this process's file
  bool imported = false;             // from a process that has it in its file
  uint32_t readers = 0, writers = 0; // protected mode: open accesses
};

struct registry {
  std::mutex mutex;                   // guards all below; not held while memory is taken from or given to the system
  std::map<uintptr_t, entry> entries; // by base address
  std::array<uint64_t, 64> used_bytes{};
};

// Never destroyed: worker threads may outlast static destruction.
registry& live() {
  static registry& r = *new registry;
  return r;
}

unsigned long long number(uint64_t value) {
  return value;
}

bool has_own_pages(uint32_t kind) {
  return settings().protect && kind == TB_MEMORY_DEVICE;
}

bool is_shared(uint32_t kind) {
  return settings().ipc && kind == TB_MEMORY_DEVICE;
}

// The limit holds for device memory; host memory is the machine's.
result reserve(int32_t device, uint32_t kind, uint64_t size_bytes) {
  if (kind != TB_MEMORY_DEVICE) return {};
  registry& r = live();
  const uint64_t limit = settings().memory_bytes;
  const std::lock_guard<std::mutex> lock(r.mutex);
  uint64_t& used = r.used_bytes[device];
  if (size_bytes > limit - used)
    return failure(TB_STATUS_OUT_OF_MEMORY,
                   "xcpu:%d: asked for %llu bytes, %llu of %llu bytes are in use (xcpu.memory)", device,
                   number(size_bytes), number(used), number(limit));
  used += size_bytes;
  return {};
}

void unreserve(int32_t device, uint32_t kind, uint64_t size_bytes) {
  if (kind != TB_MEMORY_DEVICE) return;
  registry& r = live();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.used_bytes[device] -= size_bytes;
}

// The entry `ptr` points into, or null. With the registry's mutex held.
entry* find(registry& r, const void* ptr) {
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  auto next = r.entries.upper_bound(address);
  if (next == r.entries.begin()) return nullptr;
  entry& candidate = std::prev(next)->second;
  return address - std::prev(next)->first < candidate.info.size_bytes ? &candidate : nullptr;
}

// What has memory around `ptr` without a gap; 0 bytes if there is none.
allocation extent(const entry& e, const void* ptr) {
  if (!e.reserved) return e.info;
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  uintptr_t begin = 0, end = 0;
  for (const auto& [at, size_bytes] : e.commits) {
    if (at != end) {
      if (end > address) break;
      begin = at;
    }
    end = at + size_bytes;
  }
  const bool inside = address >= begin && address < end;
  return {reinterpret_cast<void*>(inside ? begin : address), inside ? end - begin : 0, e.info.kind, e.info.device};
}

result check_unused(const entry& e, const char* what) {
  if (e.readers + e.writers == 0) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s: %p is still mapped or in use by a copy", what, e.info.base);
}

// Takes the entry out if `a` describes it exactly and nobody uses it.
result forget(const allocation& a, entry* out_entry) {
  registry& r = live();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.entries.find(reinterpret_cast<uintptr_t>(a.base));
  if (found == r.entries.end() || found->second.reserved)
    return failure(TB_STATUS_INVALID_ARGUMENT, "memory_free: %p is not the base of a live allocation", a.base);
  const entry& e = found->second;
  if (e.info.device != a.device || e.info.kind != a.kind || e.info.size_bytes != a.size_bytes)
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "memory_free: %p was allocated on device %d as kind %u with %llu bytes, not on device %d as kind %u "
                   "with %llu bytes",
                   a.base, e.info.device, e.info.kind, number(e.info.size_bytes), a.device, a.kind,
                   number(a.size_bytes));
  if (e.imported)
    return failure(TB_STATUS_INVALID_ARGUMENT, "memory_free: %p belongs to another process: ipc_close it", a.base);
  result unused = check_unused(e, "memory_free");
  if (!unused.ok()) return unused;
  *out_entry = e;
  r.entries.erase(found);
  return {};
}

// The entry whose base is `base`, or null. With the registry's mutex held.
entry* find_base(registry& r, int32_t device, const void* base) {
  const auto found = r.entries.find(reinterpret_cast<uintptr_t>(base));
  if (found == r.entries.end()) return nullptr;
  entry& e = found->second;
  return e.info.device == device && e.info.kind == TB_MEMORY_DEVICE && !e.reserved ? &e : nullptr;
}

void apply_protection(const entry& e) {
  if (!e.reserved) region_protect(e.info.base, e.info.size_bytes, e.readers > 0, e.writers > 0);
  for (const auto& [at, size_bytes] : e.commits)
    region_protect(reinterpret_cast<void*>(at), size_bytes, e.readers > 0, e.writers > 0);
}

// The entry that holds all of the range, or null. With the registry's mutex held.
entry* find_range(registry& r, int32_t device, const void* ptr, uint64_t size_bytes) {
  entry* e = find(r, ptr);
  if (!e || e->info.device != device || e->info.kind != TB_MEMORY_DEVICE) return nullptr;
  const allocation around = extent(*e, ptr);
  const uint64_t offset = reinterpret_cast<uintptr_t>(ptr) - reinterpret_cast<uintptr_t>(around.base);
  return size_bytes <= around.size_bytes - offset ? e : nullptr;
}

// The reservation that `ptr` points into; null, and *out_failure says why, unless the part is whole huge pages of one.
// With the registry's mutex held.
entry* find_part(registry& r, const char* what, int32_t device, const void* ptr, uint64_t size_bytes,
                 result* out_failure) {
  entry* e = find(r, ptr);
  const auto at = reinterpret_cast<uintptr_t>(ptr);
  if (e && e->reserved && e->info.device == device && size_bytes > 0 && at % kHugePage == 0 &&
      size_bytes % kHugePage == 0 && size_bytes <= reinterpret_cast<uintptr_t>(e->info.base) + e->info.size_bytes - at)
    return e;
  *out_failure = failure(TB_STATUS_INVALID_ARGUMENT,
                         "%s: %llu bytes at %p are not multiples of %llu in a reservation of device %d", what,
                         number(size_bytes), ptr, number(kHugePage), device);
  return nullptr;
}

bool has_commits(const entry& e, uintptr_t begin, uint64_t size_bytes) {
  const auto next = e.commits.lower_bound(begin + size_bytes);
  return next != e.commits.begin() && std::prev(next)->first + std::prev(next)->second > begin;
}

result not_a_range(int32_t device, const void* ptr, uint64_t size_bytes) {
  return failure(TB_STATUS_INVALID_ARGUMENT, "%llu bytes at %p do not lie in one allocation of device %d",
                 number(size_bytes), ptr, device);
}

} // namespace

result allocation_create(int32_t device, uint32_t kind, uint64_t size_bytes, void** out_ptr) {
  result r = reserve(device, kind, size_bytes);
  if (!r.ok()) return r;
  uint64_t offset = 0;
  void* ptr = is_shared(kind) ? shared_allocate(size_bytes, !has_own_pages(kind), &offset)
                              : region_allocate(size_bytes, has_own_pages(kind));
  if (!ptr) {
    unreserve(device, kind, size_bytes);
    return failure(TB_STATUS_OUT_OF_MEMORY, "xcpu:%d: the system has no %llu bytes", device, number(size_bytes));
  }
  registry& all = live();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.entries.emplace(reinterpret_cast<uintptr_t>(ptr), entry{{ptr, size_bytes, kind, device}, {}, false, offset});
  *out_ptr = ptr;
  return {};
}

result allocation_destroy(const allocation& a) {
  entry gone;
  result r = forget(a, &gone);
  if (!r.ok()) return r;
  if (is_shared(a.kind))
    shared_free(a.base, a.size_bytes, gone.offset);
  else
    region_free(a.base, a.size_bytes, has_own_pages(a.kind));
  unreserve(a.device, a.kind, a.size_bytes);
  return {};
}

result reservation_create(int32_t device, uint64_t size_bytes, void** out_ptr) {
  if (size_bytes == 0 || size_bytes % kHugePage != 0)
    return failure(TB_STATUS_INVALID_ARGUMENT, "address_reserve: %llu bytes are not a multiple of %llu",
                   number(size_bytes), number(kHugePage));
  void* base = region_reserve(size_bytes);
  if (!base)
    return failure(TB_STATUS_OUT_OF_MEMORY, "address_reserve: the system has no room for %llu bytes of addresses",
                   number(size_bytes));
  entry e;
  e.info = {base, size_bytes, TB_MEMORY_DEVICE, device};
  e.reserved = true;
  registry& r = live();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.entries.emplace(reinterpret_cast<uintptr_t>(base), std::move(e));
  *out_ptr = base;
  return {};
}

result reservation_destroy(int32_t device, void* base, uint64_t size_bytes) {
  {
    registry& r = live();
    const std::lock_guard<std::mutex> lock(r.mutex);
    const auto found = r.entries.find(reinterpret_cast<uintptr_t>(base));
    if (found == r.entries.end() || !found->second.reserved || found->second.info.device != device ||
        found->second.info.size_bytes != size_bytes)
      return failure(TB_STATUS_INVALID_ARGUMENT, "address_release: device %d has no reservation of %llu bytes at %p",
                     device, number(size_bytes), base);
    if (!found->second.commits.empty())
      return failure(TB_STATUS_INVALID_ARGUMENT, "address_release: a part of the reservation at %p is committed", base);
    r.entries.erase(found);
  }
  region_release(base, size_bytes);
  return {};
}

result reservation_commit(int32_t device, void* ptr, uint64_t size_bytes) {
  if (result r = reserve(device, TB_MEMORY_DEVICE, size_bytes); !r.ok()) return r;
  result r;
  {
    registry& all = live();
    const std::lock_guard<std::mutex> lock(all.mutex);
    entry* e = find_part(all, "memory_commit", device, ptr, size_bytes, &r);
    if (e && has_commits(*e, reinterpret_cast<uintptr_t>(ptr), size_bytes))
      r = failure(TB_STATUS_INVALID_ARGUMENT, "memory_commit: a part of %llu bytes at %p is committed already",
                  number(size_bytes), ptr);
    else if (e && !region_commit(ptr, size_bytes, !has_own_pages(TB_MEMORY_DEVICE)))
      r = failure(TB_STATUS_OUT_OF_MEMORY, "xcpu:%d: the system has no %llu bytes", device, number(size_bytes));
    else if (e)
      e->commits.emplace(reinterpret_cast<uintptr_t>(ptr), size_bytes);
    if (e && r.ok() && has_own_pages(TB_MEMORY_DEVICE)) apply_protection(*e);
  }
  if (!r.ok()) unreserve(device, TB_MEMORY_DEVICE, size_bytes);
  return r;
}

result reservation_decommit(int32_t device, void* ptr, uint64_t size_bytes) {
  {
    result r;
    registry& all = live();
    const std::lock_guard<std::mutex> lock(all.mutex);
    entry* e = find_part(all, "memory_decommit", device, ptr, size_bytes, &r);
    if (!e) return r;
    const auto found = e->commits.find(reinterpret_cast<uintptr_t>(ptr));
    if (found == e->commits.end() || found->second != size_bytes)
      return failure(TB_STATUS_INVALID_ARGUMENT,
                     "memory_decommit: %llu bytes at %p are not what one memory_commit put there", number(size_bytes),
                     ptr);
    if (!region_decommit(ptr, size_bytes))
      return failure(TB_STATUS_INTERNAL, "memory_decommit: the system takes no memory back at %p", ptr);
    e->commits.erase(found);
  }
  unreserve(device, TB_MEMORY_DEVICE, size_bytes);
  return {};
}

bool allocation_find(const void* ptr, allocation* out_allocation) {
  registry& r = live();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const entry* e = find(r, ptr);
  if (e) *out_allocation = extent(*e, ptr);
  return e && out_allocation->size_bytes > 0;
}

uint64_t allocated_bytes(int32_t device) {
  registry& r = live();
  const std::lock_guard<std::mutex> lock(r.mutex);
  return r.used_bytes[device];
}

result allocation_export(int32_t device, void* base, tb_ipc_handle* out_handle) {
  entry exported;
  {
    registry& r = live();
    const std::lock_guard<std::mutex> lock(r.mutex);
    const entry* e = find_base(r, device, base);
    if (!e)
      return failure(TB_STATUS_INVALID_ARGUMENT, "ipc_export: %p is not the base of a live allocation of device %d",
                     base, device);
    exported = *e;
  }
  if (exported.imported)
    return failure(TB_STATUS_UNSUPPORTED, "ipc_export: %p belongs to another process, which alone can export it", base);
  return shared_export(device, exported.info.size_bytes, exported.offset, out_handle);
}

result allocation_import(int32_t device, const tb_ipc_handle& handle, void** out_ptr) {
  entry e{};
  e.info.kind = TB_MEMORY_DEVICE;
  e.info.device = device;
  e.imported = true;
  result imported = shared_import(device, handle, !has_own_pages(TB_MEMORY_DEVICE), &e.info.base, &e.info.size_bytes);
  if (!imported.ok()) return imported;
  registry& r = live();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.entries.emplace(reinterpret_cast<uintptr_t>(e.info.base), e);
  *out_ptr = e.info.base;
  return {};
}

result allocation_close(int32_t device, void* base) {
  entry gone;
  {
    registry& r = live();
    const std::lock_guard<std::mutex> lock(r.mutex);
    const entry* e = find_base(r, device, base);
    if (!e || !e->imported)
      return failure(TB_STATUS_INVALID_ARGUMENT, "ipc_close: %p was not imported on device %d", base, device);
    result unused = check_unused(*e, "ipc_close");
    if (!unused.ok()) return unused;
    gone = *e;
    r.entries.erase(reinterpret_cast<uintptr_t>(base));
  }
  shared_unmap(base, gone.info.size_bytes);
  return {};
}

result access_begin(int32_t device, const void* ptr, uint64_t size_bytes, uint32_t access) {
  registry& r = live();
  const std::lock_guard<std::mutex> lock(r.mutex);
  entry* e = find_range(r, device, ptr, size_bytes);
  if (!e) return not_a_range(device, ptr, size_bytes);
  if (access & TB_MAP_READ) ++e->readers;
  if (access & TB_MAP_WRITE) ++e->writers;
  apply_protection(*e);
  return {};
}

result access_end(int32_t device, const void* ptr, uint64_t size_bytes, uint32_t access) {
  const uint32_t read = access & TB_MAP_READ ? 1 : 0, write = access & TB_MAP_WRITE ? 1 : 0;
  registry& r = live();
  const std::lock_guard<std::mutex> lock(r.mutex);
  entry* e = find_range(r, device, ptr, size_bytes);
  if (!e) return not_a_range(device, ptr, size_bytes);
  if (e->readers < read || e->writers < write)
    return failure(TB_STATUS_INVALID_ARGUMENT, "memory_unmap: %p is not mapped for access %u", ptr, access);
  e->readers -= read;
  e->writers -= write;
  apply_protection(*e);
  return {};
}

} // namespace xcpu
