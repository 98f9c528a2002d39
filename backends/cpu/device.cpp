#include "device.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/forked_child.h"
#include "module/launch.h"
#include "module/source.h"
#include "options.h"
#include "region.h"
#include "stream.h"

namespace xcpu {
namespace {

uint64_t capabilities() {
  uint64_t set = TB_CAP_PEER;
  if (!settings().has_modules()) {
    set |= TB_CAP_HOST_ACCESS | TB_CAP_PAGEABLE_ACCESS;
    if (!settings().protect) set |= TB_CAP_HOST_COHERENT;
  }
  if (settings().ipc) set |= TB_CAP_IPC;
  if (settings().virtual_memory) set |= TB_CAP_VIRTUAL_MEMORY;
  if (settings().async) set |= TB_CAP_ASYNC | TB_CAP_EVENT_TIMING | TB_CAP_EVENT_RERECORD | TB_CAP_GRAPH;
  return set;
}

void describe_launches(tb_device_properties& properties) {
  const modules::launch_limits limits = modules::limits();
  std::copy(std::begin(limits.block), std::end(limits.block), std::begin(properties.max_block));
  properties.max_block_items = limits.items;
  properties.preferred_block_items = std::min(limits.items, 256u);
  properties.local_memory_bytes = limits.local_bytes;
  std::strcpy(properties.driver_version, modules::driver_version().c_str());
  if (settings().modules == modules_mode::side_by_side) {
    properties.warp_size = kSimtWarp;
    properties.capability_major = modules::kCapability / 10;
    properties.capability_minor = modules::kCapability % 10;
  }
}

} // namespace

result check_device(int32_t device) {
  if (device >= 0 && device < settings().devices) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "there is no device %d; xcpu.devices is %d", device, settings().devices);
}

result device_count(int32_t* out_count) {
  *out_count = settings().devices;
  return {};
}

result device_properties(int32_t, tb_device_properties* out_properties) {
  tb_device_properties properties{};
  properties.struct_size = std::min<uint64_t>(out_properties->struct_size, sizeof properties);
  std::strcpy(properties.name, "Virtual CPU accelerator");
  std::strcpy(properties.arch, "host");
  properties.capabilities = capabilities();
  properties.total_memory_bytes = settings().memory_bytes;
  properties.allocation_alignment_bytes = kAlignment;
  properties.capability_major = 1;
  properties.multiprocessor_count = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  properties.warp_size = 1;
  if (settings().async) {
    properties.stream_priority_lowest = kLowestPriority;
    properties.stream_priority_highest = kHighestPriority;
  }
  properties.numa_node = -1;
  properties.commit_granularity_bytes = settings().virtual_memory ? kHugePage : 0;
  if (settings().has_modules()) describe_launches(properties);
  std::memcpy(out_properties, &properties, properties.struct_size);
  return {};
}

result initialize() {
  return watch_forks("xcpu");
}

result peer_can_access(int32_t, int32_t peer, int32_t* out_can_access) {
  result r = check_device(peer);
  if (r.ok()) *out_can_access = 1;
  return r;
}

} // namespace xcpu
