// Initialization, errors, faults, devices.
#include "runtime.h"

#include <string>

namespace sim {
namespace {

thread_local int thread_device = -1;
std::atomic<bool> initialized{false};

} // namespace

const char* const kPrefix = "ASCEND_SIM";

const settings& config() {
  static const settings s{setting("DEVICES", 2), uint64_t(setting("MEMORY_MIB", 2048)) << 20};
  return s;
}

device* device_at(int index) {
  static const std::vector<device*>& all = *[] {
    auto* made = new std::vector<device*>;
    for (int i = 0; i < config().devices; ++i) made->push_back(new device(i, config().memory));
    return made;
  }();
  return index >= 0 && index < config().devices ? all[static_cast<size_t>(index)] : nullptr;
}

device* current_device() {
  return device_at(thread_device);
}

int enter(const char* name) {
  if (!initialized) return refuse(kUninitialized, "%s before aclInit", name);
  device* d = current_device();
  if (!d) return refuse(kNoContext, "%s on a thread that has not called aclrtSetDevice", name);
  if (d->lost) return refuse(kLost, "%s: device %d does not answer", name, d->index);
  if (const int fault = injected_fault(name)) {
    if (fault == kLost) d->lost = true;
    return refuse(fault, "%s fails because ASCEND_SIM_FAIL says so", name);
  }
  return kOk;
}

} // namespace sim

using namespace sim;

SIM_API int aclInit(const char*) {
  if (const int fault = injected_fault("aclInit"))
    return refuse(fault, "aclInit fails because ASCEND_SIM_FAIL says so");
  return initialized.exchange(true) ? refuse(kRepeatedInitialize, "aclInit twice") : kOk;
}

SIM_API int aclFinalize() {
  initialized = false;
  return kOk;
}

SIM_API const char* aclGetRecentErrMsg() {
  static thread_local std::string told; // valid until the next call, and forgotten
  told = refusal().empty() ? "" : "simulated AscendCL: " + refusal();
  refusal().clear();
  return told.c_str();
}

SIM_API const char* aclrtGetSocName() {
  return "AscendSim";
}

SIM_API int aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  *major = 1, *minor = 13, *patch = 0;
  return kOk;
}

SIM_API int aclrtGetDeviceCount(uint32_t* count) {
  if (const int fault = injected_fault("aclrtGetDeviceCount")) return refuse(fault, "aclrtGetDeviceCount: no driver");
  *count = static_cast<uint32_t>(config().devices);
  return kOk;
}

SIM_API int aclrtSetDevice(int32_t index) {
  if (!initialized) return refuse(kUninitialized, "aclrtSetDevice before aclInit");
  device* d = device_at(index);
  if (!d) return refuse(kNoDevice, "aclrtSetDevice(%d) of %d devices", index, config().devices);
  if (d->lost) return refuse(kLost, "aclrtSetDevice: device %d does not answer", index);
  thread_device = index;
  return kOk;
}

SIM_API int aclrtGetDevice(int32_t* index) {
  if (thread_device < 0) return kNoContext; // how programs ask whether there is one
  *index = thread_device;
  return kOk;
}

SIM_API int aclrtGetDeviceInfo(uint32_t index, int attribute, int64_t* value) {
  if (!device_at(static_cast<int>(index))) return refuse(kNoDevice, "aclrtGetDeviceInfo(%u)", index);
  if (attribute != 101) return refuse(kInvalid, "aclrtGetDeviceInfo: attribute %d", attribute);
  *value = 20;
  return kOk;
}

SIM_API int aclrtDeviceCanAccessPeer(int32_t* can, int32_t index, int32_t peer) {
  if (!device_at(index) || !device_at(peer) || index == peer)
    return refuse(kNoDevice, "aclrtDeviceCanAccessPeer(%d, %d)", index, peer);
  *can = 1;
  return kOk;
}

SIM_API int aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
  if (const int error = enter("aclrtDeviceEnablePeerAccess")) return error;
  device* d = current_device();
  if (!device_at(peer) || peer == d->index || flags != 0)
    return refuse(kInvalid, "aclrtDeviceEnablePeerAccess(%d, %u) on device %d", peer, flags, d->index);
  const std::lock_guard<std::mutex> lock(d->mutex);
  d->peers[peer] = true;
  return kOk;
}

SIM_API int aclrtDeviceGetStreamPriorityRange(int32_t* lowest, int32_t* highest) {
  if (const int error = enter("aclrtDeviceGetStreamPriorityRange")) return error;
  *lowest = 7, *highest = 0;
  return kOk;
}
