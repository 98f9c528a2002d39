#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "acl.h"
#include "common/forked_child.h"
#include "virtual_memory.h"

namespace npu {
namespace {

constexpr int32_t kMaxDevices = 64;
constexpr uint64_t kAlignmentBytes = 64; // of what aclrtMallocAlign32 returns, and what copies within the device want
constexpr uint64_t kGranularityBytes = 512; // what the driver rounds up to

std::mutex mutex;                                // guards what follows
std::set<std::pair<int32_t, int32_t>> connected; // devices that may access each other

struct priorities {
  int32_t lowest = 0, highest = 0; // as AscendCL has them: the lowest is the greatest number
};

// Pre: the calling thread is bound to a device.
priorities stream_priorities() {
  priorities p;
  if (acl.aclrtDeviceGetStreamPriorityRange &&
      acl.aclrtDeviceGetStreamPriorityRange(&p.lowest, &p.highest) != kAclSuccess)
    return {};
  return p.lowest < p.highest ? priorities{} : p;
}

bool can_access(int32_t device, int32_t peer) {
  int32_t can = 0;
  return acl.aclrtDeviceCanAccessPeer && acl.aclrtDeviceEnablePeerAccess &&
         acl.aclrtDeviceCanAccessPeer(&can, device, peer) == kAclSuccess && can == 1;
}

bool can_access_all(int32_t device) {
  int32_t count = 0;
  if (!device_count(&count).ok() || count < 2) return false;
  for (int32_t peer = 0; peer < count; ++peer)
    if (peer != device && !(can_access(device, peer) && can_access(peer, device))) return false;
  return true;
}

void describe(int32_t device, tb_device_properties* p) {
  const char* soc = acl.aclrtGetSocName ? acl.aclrtGetSocName() : nullptr;
  std::snprintf(p->name, sizeof p->name, "%s", soc ? soc : "Ascend");
  std::snprintf(p->arch, sizeof p->arch, "%s", soc ? soc : "");
  int32_t version[3] = {};
  if (acl.aclrtGetVersion && acl.aclrtGetVersion(&version[0], &version[1], &version[2]) == kAclSuccess)
    std::snprintf(p->driver_version, sizeof p->driver_version, "AscendCL %d.%d.%d", version[0], version[1], version[2]);
  int64_t cores = 0;
  if (acl.aclrtGetDeviceInfo &&
      acl.aclrtGetDeviceInfo(static_cast<uint32_t>(device), kAclAiCoreCount, &cores) == kAclSuccess)
    p->multiprocessor_count = static_cast<int32_t>(cores);
  p->capabilities = TB_CAP_ASYNC | TB_CAP_EVENT_TIMING | TB_CAP_EVENT_RERECORD;
  if (can_access_all(device)) p->capabilities |= TB_CAP_PEER;
  p->commit_granularity_bytes = commit_granularity(device);
  if (p->commit_granularity_bytes) p->capabilities |= TB_CAP_VIRTUAL_MEMORY;
  p->allocation_alignment_bytes = kAlignmentBytes;
  p->allocation_granularity_bytes = kGranularityBytes;
  p->warp_size = 1;
  p->numa_node = -1;
  const priorities range = stream_priorities();
  p->stream_priority_lowest = 0;
  p->stream_priority_highest = range.highest - range.lowest;
}

} // namespace

result device_count(int32_t* out_count) {
  uint32_t count = 0;
  result r = check(acl.aclrtGetDeviceCount(&count), "aclrtGetDeviceCount");
  if (!r.ok() || count == 0)
    return failure(TB_STATUS_UNSUPPORTED,
                   "CANN finds no device. Install the Ascend driver and firmware; npu-smi info lists the devices, and "
                   "ASCEND_RT_VISIBLE_DEVICES may hide them%s%s%s",
                   r.ok() ? "" : " (", r.text.c_str(), r.ok() ? "" : ")");
  *out_count = std::min(static_cast<int32_t>(count), kMaxDevices);
  return {};
}

result initialize() {
  const int error = acl.aclInit(nullptr);
  // Another library of the process was first. Nobody finalizes: work may be pending at the process' end.
  if (error != kAclSuccess && error != kAclRepeatedInitialize) return check(error, "aclInit");
  return watch_forks("npu");
}

// AscendCL has one device per thread, and makes its context when a thread first asks for it.
result thread_bind(int32_t device) {
  return check(acl.aclrtSetDevice(device), "aclrtSetDevice");
}

bound::bound(int32_t device) : had_one_(acl.aclrtGetDevice(&before_) == kAclSuccess), result_(thread_bind(device)) {}

bound::~bound() {
  if (had_one_) acl.aclrtSetDevice(before_);
}

result device_properties(int32_t device, tb_device_properties* out_properties) {
  const bound binding(device);
  if (!binding.outcome().ok()) return binding.outcome();
  size_t free_bytes = 0, total_bytes = 0;
  result r = check(acl.aclrtGetMemInfo(kAclHbm, &free_bytes, &total_bytes), "aclrtGetMemInfo");
  if (!r.ok()) return r;
  tb_device_properties properties{};
  describe(device, &properties);
  properties.total_memory_bytes = total_bytes;
  properties.struct_size = std::min<uint64_t>(out_properties->struct_size, sizeof properties);
  std::memcpy(out_properties, &properties, properties.struct_size);
  return {};
}

result device_synchronize(int32_t) {
  return check(acl.aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
}

result peer_can_access(int32_t device, int32_t peer, int32_t* out_can_access) {
  *out_can_access = device != peer && can_access(device, peer);
  return {};
}

result enable_peers(int32_t device, int32_t peer) {
  const std::lock_guard<std::mutex> lock(mutex);
  const std::pair<int32_t, int32_t> pair = std::minmax(device, peer);
  if (connected.count(pair)) return {};
  if (result r = check(acl.aclrtDeviceEnablePeerAccess(peer, 0), "aclrtDeviceEnablePeerAccess"); !r.ok()) return r;
  const bound other(peer);
  if (!other.outcome().ok()) return other.outcome();
  result r = check(acl.aclrtDeviceEnablePeerAccess(device, 0), "aclrtDeviceEnablePeerAccess");
  if (r.ok()) connected.insert(pair);
  return r;
}

uint32_t acl_priority(int32_t priority) {
  return static_cast<uint32_t>(stream_priorities().lowest + priority);
}

} // namespace npu
