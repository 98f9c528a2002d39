#include "device.h"

#include <cstring>

#include "virtual_memory.h"

namespace xcuda {

static_assert(sizeof(CUipcMemHandle) == TB_IPC_HANDLE_BYTES);

result enable_peer(device& d, device& peer) {
  int can = 0;
  result r = check(cu.DeviceCanAccessPeer(&can, d.handle, peer.handle), "cuDeviceCanAccessPeer");
  if (!r.ok() || !can) return r;
  const CUcontext other = context_of(peer, &r);
  if (!r.ok()) return r;
  const context_scope scope(d);
  if (!scope.failure().ok()) return scope.failure();
  const std::lock_guard<std::mutex> lock(d.mutex);
  const uint64_t bit = uint64_t{1} << peer.index;
  if (d.peers & bit) return r;
  const CUresult error = cu.CtxEnablePeerAccess(other, 0);
  if (error != kCUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) r = check(error, "cuCtxEnablePeerAccess"); // torch.cuda's
  const CUmemAccessDesc access{{kCU_MEM_LOCATION_TYPE_DEVICE, d.handle}, kCU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (r.ok() && peer.pool) r = check(cu.MemPoolSetAccess(peer.pool, &access, 1), "cuMemPoolSetAccess");
  if (r.ok()) r = open_commits(peer, d);
  if (r.ok()) d.peers |= bit;
  return r;
}

result peer_can_access(int32_t device, int32_t peer, int32_t* out_can_access) {
  xcuda::device &d = device_at(device), &other = device_at(peer);
  int can = 0;
  result r = check(cu.DeviceCanAccessPeer(&can, d.handle, other.handle), "peer_can_access");
  if (r.ok() && can) r = enable_peer(d, other);
  if (r.ok()) *out_can_access = can != 0;
  return r;
}

result ipc_export(int32_t device, void* ptr, tb_ipc_handle* out_handle) {
  CUipcMemHandle handle{};
  result r = call_on(device_at(device), "ipc_export", [&] { return cu.IpcGetMemHandle(&handle, address_of(ptr)); });
  if (r.ok()) std::memcpy(out_handle->bytes, handle.reserved, sizeof handle.reserved);
  return r;
}

result ipc_import(int32_t device, const tb_ipc_handle* handle, void** out_ptr) {
  CUipcMemHandle given{};
  std::memcpy(given.reserved, handle->bytes, sizeof given.reserved);
  CUdeviceptr address = 0;
  result r = call_on(device_at(device), "ipc_import",
                     [&] { return cu.IpcOpenMemHandle(&address, given, kCU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS); });
  if (r.ok()) *out_ptr = reinterpret_cast<void*>(address);
  return r;
}

result ipc_close(int32_t device, void* ptr) {
  return call_on(device_at(device), "ipc_close", [&] { return cu.IpcCloseMemHandle(address_of(ptr)); });
}

} // namespace xcuda
