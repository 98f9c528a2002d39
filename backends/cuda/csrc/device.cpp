#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "common/forked_child.h"
#include "find.h"
#include "graph.h"
#include "nvrtc.h"
#include "options.h"
#include "stream.h"
#include "virtual_memory.h"

namespace xcuda {
namespace {

std::vector<std::unique_ptr<device>>& devices() {
  static auto& all = *new std::vector<std::unique_ptr<device>>;
  return all;
}

int attribute(const device& d, int name) {
  int value = 0;
  cu.DeviceGetAttribute(&value, name, d.handle);
  return value;
}

// What allocations are made in, and what other processes can be given.
constexpr uint64_t kGranularityBytes = 2 << 20;
// Of what cuMemAlloc and cuMemHostAlloc return.
constexpr uint64_t kAlignmentBytes = 256;
// Numbers that a GPU does not have, driver and all, mean the nearest that it has.
constexpr int32_t kHighestPriority = -5;

// cuMemAllocAsync's.
result find_pool(device* d) {
  if (!attribute(*d, kCU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
    return failure(TB_STATUS_UNSUPPORTED, "device %d has no memory pools: set xcuda.stream_alloc to 0", d->index);
  return check(cu.DeviceGetMemPool(&d->pool, d->handle), "cuDeviceGetMemPool");
}

result describe(device* d) {
  tb_device_properties& p = d->properties;
  size_t total = 0;
  result r = check(cu.DeviceGetName(p.name, sizeof p.name, d->handle), "cuDeviceGetName");
  if (r.ok()) r = check(cu.DeviceTotalMem(&total, d->handle), "cuDeviceTotalMem");
  if (!r.ok()) return r;
  p.total_memory_bytes = total;
  p.capability_major = attribute(*d, kCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  p.capability_minor = attribute(*d, kCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  std::snprintf(p.arch, sizeof p.arch, "sm_%d%d", p.capability_major, p.capability_minor);
  p.capabilities = TB_CAP_ASYNC | TB_CAP_EVENT_TIMING | TB_CAP_EVENT_RERECORD | TB_CAP_PEER | TB_CAP_GRAPH;
  // What comes from a pool is not for other processes.
  p.capabilities |= settings().stream_alloc ? TB_CAP_STREAM_ALLOC : TB_CAP_IPC;
  if (attribute(*d, kCU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)) p.capabilities |= TB_CAP_PAGEABLE_ACCESS;
  p.commit_granularity_bytes = commit_granularity(*d);
  if (p.commit_granularity_bytes) p.capabilities |= TB_CAP_VIRTUAL_MEMORY;
  p.allocation_granularity_bytes = kGranularityBytes;
  p.allocation_alignment_bytes = kAlignmentBytes;
  p.multiprocessor_count = attribute(*d, kCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  p.warp_size = attribute(*d, kCU_DEVICE_ATTRIBUTE_WARP_SIZE);
  p.stream_priority_highest = kHighestPriority;
  p.numa_node = -1;
  CUuuid uuid{};
  if (cu.DeviceGetUuid(&uuid, d->handle) == kCUDA_SUCCESS) std::memcpy(p.uuid, uuid.bytes, sizeof p.uuid);
  for (int i = 0; i < 3; ++i) {
    p.max_block[i] = static_cast<uint32_t>(attribute(*d, kCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
    p.max_grid[i] = static_cast<uint32_t>(attribute(*d, kCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
  }
  p.max_block_items = static_cast<uint32_t>(attribute(*d, kCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  p.preferred_block_items = std::min(p.max_block_items, 256u);
  p.local_memory_bytes = static_cast<uint32_t>(attribute(*d, kCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
  d->max_pitch_bytes = static_cast<size_t>(attribute(*d, kCU_DEVICE_ATTRIBUTE_MAX_PITCH));
  std::snprintf(p.driver_version, sizeof p.driver_version, "CUDA %d, %s", driver_version(), compiler_version().c_str());
  return settings().stream_alloc ? find_pool(d) : r;
}

} // namespace

device& device_at(int32_t index) {
  return *devices()[static_cast<size_t>(index)];
}

void for_each_device(void (*visit)(device& d)) {
  for (const auto& each : devices()) visit(*each);
}

CUcontext context_of(device& d, result* out_failure) {
  if (CUcontext made = d.context.load(std::memory_order_acquire)) return made;
  const std::lock_guard<std::mutex> lock(d.mutex);
  CUcontext context = d.context.load(std::memory_order_relaxed);
  if (!context) {
    *out_failure = check(cu.DevicePrimaryCtxRetain(&context, d.handle), "cuDevicePrimaryCtxRetain");
    if (!out_failure->ok()) return nullptr;
    d.context.store(context, std::memory_order_release);
  }
  return context;
}

context_scope::context_scope(device& d) {
  CUcontext context = context_of(d, &failure_), current = nullptr;
  if (!context || (cu.CtxGetCurrent(&current) == kCUDA_SUCCESS && current == context)) return;
  if (!current && d.index == 0) {
    failure_ = check(cu.CtxSetCurrent(context), "cuCtxSetCurrent");
  } else {
    failure_ = check(cu.CtxPushCurrent(context), "cuCtxPushCurrent");
    pushed_ = failure_.ok();
  }
}

context_scope::~context_scope() {
  CUcontext popped = nullptr;
  if (pushed_) cu.CtxPopCurrent(&popped);
}

result initialize() {
  int count = 0;
  result r = start_driver();
  if (r.ok()) r = check(cu.DeviceGetCount(&count), "cuDeviceGetCount");
  std::vector<std::unique_ptr<device>> found;
  for (int i = 0; r.ok() && i < count; ++i) {
    CUdevice handle = 0;
    r = check(cu.DeviceGet(&handle, i), "cuDeviceGet");
    found.emplace_back(new device(i, handle));
    if (r.ok()) r = describe(found.back().get());
  }
  if (r.status == TB_STATUS_UNSUPPORTED) r.status = TB_STATUS_INTERNAL; // else there would be nothing to start
  if (r.ok()) r = watch_forks("xcuda");
  if (!r.ok()) return r;
  devices() = std::move(found);
  return {};
}

result device_count(int32_t* out_count) {
  static std::mutex mutex; // guards counted
  static int32_t counted = -1;
  const std::lock_guard<std::mutex> lock(mutex);
  if (counted < 0)
    if (result r = count_devices(&counted); !r.ok()) return r;
  *out_count = counted;
  return {};
}

result device_properties(int32_t device, tb_device_properties* out_properties) {
  tb_device_properties properties = device_at(device).properties;
  properties.struct_size = std::min<uint64_t>(out_properties->struct_size, sizeof properties);
  std::memcpy(out_properties, &properties, properties.struct_size);
  return {};
}

result device_synchronize(int32_t device) {
  if (result r = refuse_while_captured(device); !r.ok()) return r;
  result r = wait_for_streams(device, "device_synchronize");
  return r.ok() ? tell_aborts(device_at(device), nullptr) : r;
}

} // namespace xcuda
