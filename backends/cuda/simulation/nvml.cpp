// The simulated libnvidia-ml: what a GPU is doing, which is made up.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "driver.h"

#define NVML_API extern "C" __attribute__((visibility("default"))) int

namespace sim {

constexpr int kUninitialized = 1, kInvalidArgument = 2, kNotFound = 6, kInsufficientSize = 7;

struct gpu {
  unsigned index;
};

struct utilization {
  unsigned gpu, memory;
};

struct process {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

namespace {

constexpr unsigned kDevices = 64;
std::atomic<bool> started{false};
gpu gpus[kDevices];

int enter_nvml(const char* name) {
  if (const int fault = injected_fault(name)) return refuse(fault, "%s fails because CUDA_SIM_FAIL says so", name);
  return started ? 0 : refuse(kUninitialized, "%s before nvmlInit", name);
}

int find(const char* name, const gpu* handle) {
  if (const int error = enter_nvml(name)) return error;
  const bool is_one = handle >= gpus && handle < gpus + kDevices;
  return is_one ? 0 : refuse(kInvalidArgument, "%s: not a device", name);
}

// As the simulated driver's cuDeviceGetUuid has it.
std::string uuid_of(unsigned index) {
  char text[48];
  const unsigned byte = 0x51 + index, two = byte << 8 | byte;
  std::snprintf(text, sizeof text, "GPU-%04x%04x-%04x-%04x-%04x-%04x%04x%04x", two, two, two, two, two, two, two, two);
  return text;
}

} // namespace
} // namespace sim

using namespace sim;

NVML_API nvmlInit_v2() {
  if (const int fault = injected_fault("nvmlInit_v2"))
    return refuse(fault, "nvmlInit_v2 fails because CUDA_SIM_FAIL says so");
  for (unsigned i = 0; i < kDevices; ++i) gpus[i].index = i;
  started = true;
  return 0;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int) {
  return refusal().c_str();
}

NVML_API nvmlDeviceGetHandleByUUID(const char* uuid, gpu** out) {
  if (const int error = enter_nvml("nvmlDeviceGetHandleByUUID")) return error;
  for (unsigned i = 0; i < static_cast<unsigned>(setting("DEVICES", 2)); ++i)
    if (uuid_of(i) == uuid) return *out = &gpus[i], 0;
  return refuse(kNotFound, "nvmlDeviceGetHandleByUUID: no device is %s", uuid);
}

NVML_API nvmlDeviceGetUtilizationRates(const gpu* device, utilization* out) {
  if (const int error = find("nvmlDeviceGetUtilizationRates", device)) return error;
  *out = {70 + device->index, 30 + device->index};
  return 0;
}

NVML_API nvmlDeviceGetTemperature(const gpu* device, unsigned sensor, unsigned* out) {
  if (const int error = find("nvmlDeviceGetTemperature", device)) return error;
  if (sensor) return refuse(kInvalidArgument, "nvmlDeviceGetTemperature: sensor %u", sensor);
  *out = 40 + device->index;
  return 0;
}

NVML_API nvmlDeviceGetPowerUsage(const gpu* device, unsigned* out) {
  if (const int error = find("nvmlDeviceGetPowerUsage", device)) return error;
  *out = 350'000 + device->index;
  return 0;
}

NVML_API nvmlDeviceGetClockInfo(const gpu* device, unsigned clock, unsigned* out) {
  if (const int error = find("nvmlDeviceGetClockInfo", device)) return error;
  if (clock > 3) return refuse(kInvalidArgument, "nvmlDeviceGetClockInfo: clock %u", clock);
  *out = clock == 1 ? 1980 + device->index : 100;
  return 0;
}

// Of this process, and of one whose memory is not known.
NVML_API nvmlDeviceGetComputeRunningProcesses_v3(const gpu* device, unsigned* count, process* out) {
  if (const int error = find("nvmlDeviceGetComputeRunningProcesses_v3", device)) return error;
  const unsigned room = *count, found = device->index == 0 ? 2 : 0;
  *count = found;
  if (room < found) return kInsufficientSize; // how programs ask
  if (found) out[0] = {static_cast<unsigned>(getpid()), 300 << 20, ~0u, ~0u};
  if (found) out[1] = {7, ~0ull, ~0u, ~0u};
  return 0;
}
