// What a device says of itself, and whether that can be.
#pragma once

#include <string>
#include <vector>

#include "torch_backend/device.h"

namespace torch_backend {

/// Every TB_CAP_ flag of this version of the ABI.
constexpr uint64_t kKnownCapabilities =
    TB_CAP_ASYNC | TB_CAP_HOST_ACCESS | TB_CAP_HOST_COHERENT | TB_CAP_PAGEABLE_ACCESS | TB_CAP_STREAM_ALLOC |
    TB_CAP_EVENT_TIMING | TB_CAP_EVENT_RERECORD | TB_CAP_PEER | TB_CAP_IPC | TB_CAP_GRAPH | TB_CAP_VIRTUAL_MEMORY;

/// Those that are equal on all devices of a plugin.
constexpr uint64_t kCommonCapabilities = TB_CAP_ASYNC | TB_CAP_HOST_ACCESS | TB_CAP_HOST_COHERENT;

/// What `table.device_properties` answers for a device, with struct_size ours, and without flags of later versions. Throws
/// what the slot fails with, and RuntimeError naming every value that cannot be, or does not fit the table's slots.
tb_device_properties read_properties(const tb_core_table& table, const std::string& plugin, int device);

} // namespace torch_backend
