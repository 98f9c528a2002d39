#include "find.h"

#include <algorithm>

#include "common/count_in_child.h"
#include "cu.h"

namespace xcuda {
namespace {

constexpr int kMaxDevices = 64;

result ask_driver(int32_t* out_count) {
  int count = 0;
  result r = start_driver();
  if (r.ok()) r = check(cu.DeviceGetCount(&count), "cuDeviceGetCount");
  if (r.ok() && count == 0)
    r = failure(TB_STATUS_UNSUPPORTED,
                "the driver shows no GPU: nvidia-smi -L lists them, and CUDA_VISIBLE_DEVICES may hide them");
  if (r.ok()) *out_count = std::min(count, kMaxDevices);
  return r;
}

} // namespace

result count_devices(int32_t* out_count) {
  int count = 0;
  if (cu.DeviceGetCount(&count) != kCUDA_ERROR_NOT_INITIALIZED) return ask_driver(out_count); // somebody has started it
  return count_in_child(ask_driver, "NVIDIA's driver crashed or hung when it was asked for its devices: see nvidia-smi",
                        out_count);
}

} // namespace xcuda
