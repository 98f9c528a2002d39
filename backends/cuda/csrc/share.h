// Memory that other devices, and other processes, use.
#pragma once

#include "device.h"
#include "result.h"

namespace xcuda {

// Lets `d` access the memory of `peer`, if it can; asked once for each pair.
result enable_peer(device& d, device& peer);

result peer_can_access(int32_t device, int32_t peer, int32_t* out_can_access);
result ipc_export(int32_t device, void* ptr, tb_ipc_handle* out_handle);
result ipc_import(int32_t device, const tb_ipc_handle* handle, void** out_ptr);
result ipc_close(int32_t device, void* ptr);

} // namespace xcuda
