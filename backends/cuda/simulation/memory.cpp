// Memory, copies, fills, memory of other processes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.h"
#include "recording.h"

namespace sim {
namespace {

// What is not in a device's own memory.
struct range {
  uint64_t size = 0;
  int device = 0; // that was current
  bool is_device = false, is_registered = false;
  char* alias = nullptr;
};

struct range_list {
  std::mutex mutex; // guards all below
  std::map<CUdeviceptr, range> by_address;
  std::multiset<CUdeviceptr> awaited;

  // The entry that has all of it. Pre: the mutex is held.
  std::map<CUdeviceptr, range>::iterator find(CUdeviceptr address, size_t bytes) {
    auto next = by_address.upper_bound(address);
    if (next == by_address.begin()) return by_address.end();
    --next;
    return address + bytes <= next->first + next->second.size ? next : by_address.end();
  }
  bool overlaps(CUdeviceptr address, size_t bytes) {
    const auto next = by_address.lower_bound(address);
    return find(address, 1) != by_address.end() || (next != by_address.end() && next->first < address + bytes);
  }
};

range_list& ranges() {
  static auto& all = *new range_list;
  return all;
}

CUcontext owner_of(CUdeviceptr address) {
  if (const auto mapped = find_mapped(address, 1, -1); mapped.is_reserved) return mapped.owner;
  for (int i = 0; i < device_count(); ++i)
    if (CUcontext context = context_of(i); context->memory->has(reinterpret_cast<void*>(address))) return context;
  return nullptr;
}

bool find_range(CUdeviceptr address, size_t bytes, range* out_range, CUdeviceptr* out_base) {
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  const auto found = ranges().find(address, bytes);
  if (found == ranges().by_address.end()) return false;
  *out_range = found->second;
  *out_base = found->first;
  return true;
}

bool is_page_locked(const void* address, size_t bytes) {
  range found;
  CUdeviceptr base = 0;
  return find_range(address_of(address), bytes, &found, &base) && !found.is_device;
}

} // namespace

char* resolve(CUdeviceptr address, size_t bytes, CUcontext context) {
  if (const auto mapped = find_mapped(address, bytes, context->device); mapped.is_reserved) return mapped.alias;
  if (CUcontext owner = owner_of(address)) {
    bool may_access = owner == context;
    if (!may_access) {
      const std::lock_guard<std::mutex> lock(context->mutex);
      may_access = context->peers.count(owner->device);
    }
    const std::lock_guard<std::mutex> lock(owner->mutex);
    const auto* piece = owner->pool.find(address);
    if (piece && !piece->is_there) return nullptr;
    if (piece && owner != context) may_access = owner->pool.others.count(context->device);
    if (!may_access) return nullptr;
    return owner->memory->resolve(reinterpret_cast<void*>(address), bytes);
  }
  range found;
  CUdeviceptr base = 0;
  if (!find_range(address, bytes, &found, &base)) return nullptr;
  return found.alias ? found.alias + (address - base) : reinterpret_cast<char*>(address);
}

void trim_pool(CUcontext context) {
  const std::lock_guard<std::mutex> lock(context->mutex);
  context->pool.unused = 0;
}

awaited_word::awaited_word(CUdeviceptr word) : address(word) {
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  ranges().awaited.insert(address);
}

awaited_word::~awaited_word() {
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  ranges().awaited.erase(ranges().awaited.find(address));
}

bool is_device_memory(CUdeviceptr address) {
  range found;
  CUdeviceptr base = 0;
  return owner_of(address) || (find_range(address, 1, &found, &base) && found.is_device);
}

namespace {

// A rectangle in memory that a copy reads or writes.
struct side {
  CUdeviceptr address = 0;
  size_t pitch = 0;
  bool is_device = false;
  std::vector<char> staged; // what pageable memory had

  // Null where the device may not access it.
  char* start(size_t width, size_t height, CUcontext context) {
    if (!staged.empty()) return staged.data();
    if (!is_device) return reinterpret_cast<char*>(address);
    return resolve(address, pitch * (height - 1) + width, context);
  }
};

void stage(side* from, size_t width, size_t height) {
  std::vector<char> bytes(width * height);
  for (size_t row = 0; row < height; ++row)
    std::memcpy(&bytes[row * width], reinterpret_cast<char*>(from->address) + row * from->pitch, width);
  from->staged = std::move(bytes);
  from->pitch = width;
}

// As the driver does it: what comes from pageable memory has been read when the call returns, and what goes there has been
// written.
int copy(const char* name, side to, side from, size_t width, size_t height, CUcontext context, CUcontext there,
         CUstream stream) {
  if (width == 0 || height == 0) return 0;
  for (const side* each : {&to, &from})
    if (each->is_device != is_device_memory(each->address))
      return refuse(kCUDA_ERROR_INVALID_VALUE, "%s: %p is not in %s memory", name,
                    reinterpret_cast<void*>(each->address), each->is_device ? "device" : "host");
  const auto is_pageable = [&](const side& s) {
    return !s.is_device && !is_page_locked(reinterpret_cast<void*>(s.address), s.pitch * (height - 1) + width);
  };
  const bool waits = is_pageable(to);
  const auto kind_of = [&](const side& s) { return s.is_device ? 3 : is_pageable(s) ? 1 : 2; };
  traced_work work{traced_work::kCopy, "", width * height, kind_of(from), kind_of(to), context != there};
  if (is_pageable(from)) stage(&from, width, height);
  const int error = enqueue(name, stream,
                            {[=]() mutable {
                               char* target = to.start(width, height, there);
                               const char* source = from.start(width, height, context);
                               if (!target || !source)
                                 return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS,
                                               "%s: %s is outside of an allocation, or of another device", name,
                                               target ? "the source" : "the target");
                               if (to.pitch == width && from.pitch == width)
                                 std::memmove(target, source, width * height);
                               else
                                 for (size_t row = 0; row < height; ++row)
                                   std::memmove(target + row * to.pitch, source + row * from.pitch, width);
                               return 0;
                             },
                             false, std::move(work)});
  return !error && waits ? wait_for(stream) : error;
}

int copy_1d(const char* name, CUdeviceptr dst, bool to_device, CUdeviceptr src, bool from_device, size_t bytes,
            CUstream handle) {
  CUstream stream = nullptr;
  if (const int error = enter(name, handle, &stream)) return error;
  return copy(name, {dst, bytes, to_device, {}}, {src, bytes, from_device, {}}, bytes, 1, stream->context,
              stream->context, stream);
}

template <typename T>
int fill(const char* name, CUdeviceptr address, size_t pitch, T value, size_t width, size_t height, CUstream handle) {
  CUstream stream = nullptr;
  if (const int error = enter(name, handle, &stream)) return error;
  if (address % sizeof value || (height > 1 && (pitch % sizeof value || pitch < width * sizeof value)))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "%s: %p or the pitch %zu is not aligned to %zu", name,
                  reinterpret_cast<void*>(address), pitch, sizeof value);
  if (!is_device_memory(address)) return refuse(kCUDA_ERROR_INVALID_VALUE, "%s: not device memory", name);
  if (width == 0 || height == 0) return 0;
  return enqueue(name, stream,
                 {[=] {
                    char* target = resolve(address, pitch * (height - 1) + width * sizeof value, stream->context);
                    if (!target) return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "%s outside of an allocation", name);
                    for (size_t row = 0; row < height; ++row)
                      for (size_t i = 0; i < width; ++i)
                        std::memcpy(target + row * pitch + i * sizeof value, &value, sizeof value);
                    return 0;
                  },
                  false,
                  {traced_work::kFill, "", width * height * sizeof value}});
}

} // namespace
} // namespace sim

using namespace sim;

// ---- memory for other processes: the file, in /proc, that their device's memory is, and a note in it while the
// allocation lives ----

namespace {

struct handle_text {
  char magic[8];
  pid_t process;
  int file, device;
  uint64_t offset, size, note, serial;
};
constexpr char kMagic[8] = "CUDASIM";
static_assert(sizeof(handle_text) <= sizeof(CUipcMemHandle));

// Where the notes of exported allocations are, by offset. Guarded by the context's mutex.
std::multimap<uint64_t, uint64_t>& exports_of(CUcontext context) {
  static auto& all = *new std::map<CUcontext, std::multimap<uint64_t, uint64_t>>;
  static std::mutex mutex; // guards all
  const std::lock_guard<std::mutex> lock(mutex);
  return all[context];
}

void write_note(CUcontext context, uint64_t at, uint64_t serial) {
  if (pwrite(context->memory->file(), &serial, sizeof serial, static_cast<off_t>(at)) != sizeof serial) std::abort();
}

void withdraw_exports(CUcontext context, uint64_t offset) {
  const auto [first, last] = exports_of(context).equal_range(offset);
  for (auto each = first; each != last; ++each) write_note(context, each->second, 0);
  exports_of(context).erase(first, last);
}

} // namespace

// ---- device memory ----

CU_API cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  CUcontext context = nullptr;
  if (const int error = enter("cuMemGetInfo", &context)) return error;
  const std::lock_guard<std::mutex> lock(context->mutex);
  const uint64_t taken = context->memory->used() + context->pool.unused;
  *free_bytes = context->memory->size() - std::min(taken, context->memory->size());
  *total_bytes = context->memory->size();
  return 0;
}

CU_API cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  CUcontext context = nullptr;
  if (const int error = enter("cuMemAlloc", &context)) return error;
  if (const int error = refuse_unsafe("cuMemAlloc")) return error;
  if (bytes == 0) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemAlloc of 0 bytes");
  const std::lock_guard<std::mutex> lock(context->mutex);
  *address = address_of(context->memory->allocate(bytes));
  return *address ? 0 : refuse(kCUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc: no %zu bytes are free", bytes);
}

CU_API cuMemFree_v2(CUdeviceptr address) {
  CUcontext context = nullptr;
  if (const int error = enter("cuMemFree", &context)) return error;
  if (const int error = refuse_unsafe("cuMemFree")) return error;
  CUcontext owner = owner_of(address);
  if (!owner) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemFree: not an address of device memory");
  const std::lock_guard<std::mutex> lock(owner->mutex);
  withdraw_exports(owner, address - address_of(owner->memory->base()));
  if (const auto* piece = owner->pool.find(address); piece && piece->is_freed)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemFree of what cuMemFreeAsync has freed");
  owner->pool.pieces.erase(address);
  return owner->memory->free(reinterpret_cast<char*>(address))
             ? 0
             : refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemFree: not the start of an allocation");
}

// ---- device memory in the order of streams ----

namespace {

// What other streams will have freed is waited for where the driver lets the stream wait.
CUdeviceptr allocate_piece(CUcontext context, size_t bytes) {
  std::set<CUstream> freeing;
  {
    const std::lock_guard<std::mutex> lock(context->mutex);
    if (char* found = context->memory->allocate(bytes)) return address_of(found);
    for (const auto& [address, piece] : context->pool.pieces)
      if (piece.freed_on) freeing.insert(piece.freed_on);
  }
  for (CUstream each : freeing) wait_for(each);
  const std::lock_guard<std::mutex> lock(context->mutex);
  return address_of(context->memory->allocate(bytes));
}

bool is_capturing(CUstream stream) {
  const std::lock_guard<std::mutex> lock(capture_mutex());
  return stream->capturing != nullptr;
}

} // namespace

CU_API cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  constexpr char kName[] = "cuMemAllocAsync";
  CUstream stream = nullptr;
  if (const int error = enter(kName, handle, &stream)) return error;
  if (bytes == 0) return refuse(kCUDA_ERROR_INVALID_VALUE, "%s of 0 bytes", kName);
  if (is_capturing(stream))
    return refuse(kCUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s in a capture, whose memory would be the graph's", kName);
  CUcontext context = stream->context;
  const CUdeviceptr made = allocate_piece(context, bytes);
  if (!made) return refuse(kCUDA_ERROR_OUT_OF_MEMORY, "%s: no %zu bytes are free", kName, bytes);
  {
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->pool.pieces[made].size = bytes;
    context->pool.unused -= std::min<uint64_t>(context->pool.unused, bytes);
  }
  *address = made;
  return enqueue(kName, stream,
                 {[=] {
                    const std::lock_guard<std::mutex> lock(context->mutex);
                    if (auto* piece = context->pool.find(made)) piece->is_there = true;
                    return 0;
                  },
                  true});
}

CU_API cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  constexpr char kName[] = "cuMemFreeAsync";
  CUstream stream = nullptr;
  if (const int error = enter(kName, handle, &stream)) return error;
  if (is_capturing(stream))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "%s in a capture of what is not the graph's", kName);
  CUcontext context = owner_of(address);
  if (!context) return refuse(kCUDA_ERROR_INVALID_VALUE, "%s: not an address of device memory", kName);
  {
    const std::lock_guard<std::mutex> lock(context->mutex);
    const auto found = context->pool.pieces.find(address);
    if (found == context->pool.pieces.end() || found->second.is_freed)
      return refuse(kCUDA_ERROR_INVALID_VALUE, "%s: not the start of an allocation of cuMemAllocAsync", kName);
    found->second.is_freed = true;
    found->second.freed_on = stream;
  }
  return enqueue(kName, stream,
                 {[=] {
                    const std::lock_guard<std::mutex> lock(context->mutex);
                    context->pool.unused += context->pool.pieces.at(address).size;
                    context->pool.pieces.erase(address);
                    context->memory->free(reinterpret_cast<char*>(address));
                    return 0;
                  },
                  true});
}

CU_API cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value) {
  if (const int error = enter_free("cuMemPoolGetAttribute")) return error;
  CUcontext context = context_of(pool->device);
  const std::lock_guard<std::mutex> lock(context->mutex);
  uint64_t used = 0;
  for (const auto& [address, piece] : pool->pieces) used += piece.size;
  if (attribute != kCU_MEMPOOL_ATTR_USED_MEM_CURRENT && attribute != kCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemPoolGetAttribute: %d is not simulated", attribute);
  *static_cast<uint64_t*>(value) = attribute == kCU_MEMPOOL_ATTR_USED_MEM_CURRENT ? used : used + pool->unused;
  return 0;
}

CU_API cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* accesses, size_t count) {
  if (const int error = enter_free("cuMemPoolSetAccess")) return error;
  CUcontext context = context_of(pool->device);
  const std::lock_guard<std::mutex> lock(context->mutex);
  for (const CUmemAccessDesc* each = accesses; each != accesses + count; ++each) {
    const auto [type, id] = each->location;
    if (type != kCU_MEM_LOCATION_TYPE_DEVICE || id < 0 || id >= device_count() || id == pool->device ||
        each->flags != kCU_MEM_ACCESS_FLAGS_PROT_READWRITE || !setting("PEERS", 1))
      return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemPoolSetAccess: location %d %d with flags %d", type, id,
                    each->flags);
    pool->others.insert(id);
  }
  return 0;
}

// ---- host memory ----

CU_API cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  CUcontext context = nullptr;
  if (const int error = enter("cuMemHostAlloc", &context)) return error;
  if (const int error = refuse_unsafe("cuMemHostAlloc")) return error;
  if (bytes == 0 || flags & ~7u) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemHostAlloc(%zu, %u)", bytes, flags);
  if (posix_memalign(address, 4096, bytes) != 0)
    return refuse(kCUDA_ERROR_OUT_OF_MEMORY, "cuMemHostAlloc: no %zu bytes", bytes);
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  ranges().by_address[address_of(*address)] = {bytes, context->device, false, false, nullptr};
  return 0;
}

CU_API cuMemFreeHost(void* address) {
  CUcontext context = nullptr;
  if (const int error = enter("cuMemFreeHost", &context)) return error;
  if (const int error = refuse_unsafe("cuMemFreeHost")) return error;
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  const auto found = ranges().by_address.find(address_of(address));
  if (found == ranges().by_address.end() || found->second.is_registered || found->second.is_device)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemFreeHost: memory that cuMemHostAlloc has not returned");
  const auto awaited = ranges().awaited.lower_bound(found->first);
  if (awaited != ranges().awaited.end() && *awaited < found->first + found->second.size)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemFreeHost: a stream waits for a word of it");
  ranges().by_address.erase(found);
  std::free(address);
  return 0;
}

CU_API cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
  CUcontext context = nullptr;
  if (const int error = enter("cuMemHostRegister", &context)) return error;
  if (const int error = refuse_unsafe("cuMemHostRegister")) return error;
  if (!address || bytes == 0 || flags & ~0xfu)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemHostRegister(%p, %zu, %u)", address, bytes, flags);
  if (is_device_memory(address_of(address)))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemHostRegister of device memory");
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  if (ranges().overlaps(address_of(address), bytes))
    return refuse(kCUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "cuMemHostRegister: page-locked already");
  ranges().by_address[address_of(address)] = {bytes, context->device, false, true, nullptr};
  return 0;
}

CU_API cuMemHostUnregister(void* address) {
  CUcontext context = nullptr;
  if (const int error = enter("cuMemHostUnregister", &context)) return error;
  if (const int error = refuse_unsafe("cuMemHostUnregister")) return error;
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  const auto found = ranges().by_address.find(address_of(address));
  if (found == ranges().by_address.end() || !found->second.is_registered)
    return refuse(kCUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister: not registered");
  ranges().by_address.erase(found);
  return 0;
}

CU_API cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* host_address, unsigned flags) {
  CUcontext context = nullptr;
  if (const int error = enter("cuMemHostGetDevicePointer", &context)) return error;
  if (flags || !is_page_locked(host_address, 1))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemHostGetDevicePointer: not page-locked, or flags %u", flags);
  *address = address_of(host_address);
  return 0;
}

CU_API cuPointerGetAttributes(unsigned count, int* attributes, void** values, CUdeviceptr address) {
  if (const int error = enter_free("cuPointerGetAttributes")) return error;
  unsigned type = 0;
  int device = -2;
  CUdeviceptr base = 0;
  uint64_t size = 0, offset = 0;
  CUmemoryPool pool = nullptr;
  range found;
  const auto mapped = find_mapped(address, 1, -1);
  if (CUcontext owner = owner_of(address)) {
    const std::lock_guard<std::mutex> lock(owner->mutex);
    const auto* piece = owner->pool.find(address);
    if (piece && piece->is_freed)
      return refuse(kCUDA_ERROR_INVALID_VALUE, "cuPointerGetAttributes of what cuMemFreeAsync has freed");
    if (piece) pool = &owner->pool;
    if (mapped.is_reserved)
      base = mapped.base, size = mapped.size, type = kCU_MEMORYTYPE_DEVICE, device = owner->device;
    else if (owner->memory->resolve(reinterpret_cast<void*>(address), 1, &offset)) {
      size = owner->memory->allocations().at(offset);
      base = address_of(owner->memory->base()) + offset;
      type = kCU_MEMORYTYPE_DEVICE, device = owner->device;
    }
  } else if (find_range(address, 1, &found, &base)) {
    type = found.is_device ? kCU_MEMORYTYPE_DEVICE : kCU_MEMORYTYPE_HOST;
    device = found.device, size = found.size;
  }
  for (unsigned i = 0; i < count; ++i) switch (attributes[i]) {
      case kCU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) = type;
        break;
      case kCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = device;
        break;
      case kCU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = base;
        break;
      case kCU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t*>(values[i]) = size;
        break;
      case kCU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *static_cast<CUmemoryPool*>(values[i]) = pool;
        break;
      default:
        return refuse(kCUDA_ERROR_INVALID_VALUE, "cuPointerGetAttributes: %d is not simulated", attributes[i]);
    }
  return 0;
}

// ---- copies and fills ----

CU_API cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return copy_1d("cuMemcpyHtoDAsync", dst, true, address_of(src), false, bytes, stream);
}
CU_API cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  if (!runs_kernels()) return copy_unknown_result(dst, bytes), 0;
  return copy_1d("cuMemcpyDtoHAsync", address_of(dst), false, src, true, bytes, stream);
}
CU_API cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_1d("cuMemcpyDtoDAsync", dst, true, src, true, bytes, stream);
}

CU_API cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                         CUstream handle) {
  CUstream stream = nullptr;
  if (const int error = enter("cuMemcpyPeerAsync", handle, &stream)) return error;
  if (owner_of(dst) != dst_context || owner_of(src) != src_context)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemcpyPeerAsync: memory of another context");
  return copy("cuMemcpyPeerAsync", {dst, bytes, true, {}}, {src, bytes, true, {}}, bytes, 1, src_context, dst_context,
              stream);
}

CU_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream handle) {
  CUstream stream = nullptr;
  if (const int error = enter("cuMemcpy2DAsync", handle, &stream)) return error;
  for (const int type : {c->srcMemoryType, c->dstMemoryType})
    if (type != kCU_MEMORYTYPE_HOST && type != kCU_MEMORYTYPE_DEVICE)
      return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemcpy2DAsync: memory type %d", type);
  if (c->srcPitch < c->WidthInBytes || c->dstPitch < c->WidthInBytes || c->srcPitch > 0x7fffffff ||
      c->dstPitch > 0x7fffffff)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuMemcpy2DAsync: pitches %zu and %zu", c->srcPitch, c->dstPitch);
  const auto make_side = [](int type, const void* host, CUdeviceptr device, size_t pitch, size_t x, size_t y) {
    const bool is_device = type == kCU_MEMORYTYPE_DEVICE;
    return side{(is_device ? device : address_of(host)) + x + y * pitch, pitch, is_device, {}};
  };
  return copy("cuMemcpy2DAsync",
              make_side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstPitch, c->dstXInBytes, c->dstY),
              make_side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcPitch, c->srcXInBytes, c->srcY),
              c->WidthInBytes, c->Height, stream->context, stream->context, stream);
}

CU_API cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
  return fill("cuMemsetD8Async", address, 0, value, count, 1, stream);
}
CU_API cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
  return fill("cuMemsetD16Async", address, 0, value, count, 1, stream);
}
CU_API cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
  return fill("cuMemsetD32Async", address, 0, value, count, 1, stream);
}
CU_API cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height,
                          CUstream stream) {
  return fill("cuMemsetD2D32Async", address, pitch, value, width, height, stream);
}

// ---- memory of other processes ----

CU_API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  CUcontext context = nullptr;
  if (const int error = enter("cuIpcGetMemHandle", &context)) return error;
  CUcontext owner = owner_of(address);
  if (!owner) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuIpcGetMemHandle: not of cuMemAlloc");
  const std::lock_guard<std::mutex> lock(owner->mutex);
  const uint64_t offset = address - address_of(owner->memory->base());
  const auto found = owner->memory->allocations().find(offset);
  if (found == owner->memory->allocations().end())
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuIpcGetMemHandle: not the start of an allocation");
  if (owner->pool.find(address)) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuIpcGetMemHandle of memory of a pool");
  static std::atomic<uint64_t> serials{0};
  const uint64_t serial = ++serials;
  const uint64_t note = owner->memory->size() + serial * sizeof serial % arena::kNoteBytes;
  exports_of(owner).emplace(offset, note);
  write_note(owner, note, serial);
  handle_text text{"CUDASIM", getpid(), owner->memory->file(), owner->device, offset, found->second, note, serial};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &text, sizeof text);
  return 0;
}

CU_API cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  CUcontext context = nullptr;
  if (const int error = enter("cuIpcOpenMemHandle", &context)) return error;
  handle_text text;
  std::memcpy(&text, &handle, sizeof text);
  if (std::memcmp(text.magic, kMagic, sizeof kMagic) != 0 || flags != 1)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuIpcOpenMemHandle: no handle, or flags %u", flags);
  if (text.process == getpid()) return refuse(kInvalidContext, "cuIpcOpenMemHandle in the process that exports");
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", text.process, text.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  uint64_t serial = 0;
  const bool is_there = file >= 0 && pread(file, &serial, sizeof serial, static_cast<off_t>(text.note)) > 0;
  if (!is_there || serial != text.serial) {
    if (file >= 0) close(file);
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuIpcOpenMemHandle: the memory is gone");
  }
  const uint64_t start = text.offset / 4096 * 4096, size = text.offset + text.size - start;
  void* base = mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, static_cast<off_t>(start));
  void* alias = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(start));
  close(file);
  if (base == MAP_FAILED || alias == MAP_FAILED) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuIpcOpenMemHandle: mmap");
  *address = address_of(base) + text.offset - start;
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  ranges().by_address[*address] = {text.size, context->device, true, false,
                                   static_cast<char*>(alias) + text.offset - start};
  return 0;
}

CU_API cuIpcCloseMemHandle(CUdeviceptr address) {
  CUcontext context = nullptr;
  if (const int error = enter("cuIpcCloseMemHandle", &context)) return error;
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  const auto found = ranges().by_address.find(address);
  if (found == ranges().by_address.end() || !found->second.is_device)
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuIpcCloseMemHandle: not opened");
  for (const CUdeviceptr at : {address, address_of(found->second.alias)})
    munmap(reinterpret_cast<void*>(at / 4096 * 4096), found->second.size + at % 4096);
  ranges().by_address.erase(found);
  return 0;
}
