#include "cudnn.h"

#include "library.h"

namespace xcuda {

cudnn_functions dnn;

namespace {

const char* (*error_string)(cudnnStatus_t) = nullptr;
size_t (*cudart_version)() = nullptr;

// cuDNN 9's numbers are grouped by thousands; those of 8 are all less.
tb_status status_of(cudnnStatus_t error) {
  constexpr int kAllocFailed8 = 2, kBadParam8 = 3, kArchMismatch8 = 6, kNotSupported8 = 9, kHostAllocation9 = 4003,
                kDeviceAllocation9 = 4004, kGroup = 1000, kBadParam9 = 2, kNotSupported9 = 3;
  if (error == kAllocFailed8 || error == kHostAllocation9 || error == kDeviceAllocation9)
    return TB_STATUS_OUT_OF_MEMORY;
  if (error == kNotSupported8 || error == kArchMismatch8 || error / kGroup == kNotSupported9)
    return TB_STATUS_UNSUPPORTED;
  return error == kBadParam8 || error / kGroup == kBadParam9 ? TB_STATUS_INVALID_ARGUMENT : TB_STATUS_INTERNAL;
}

} // namespace

bool load_cudnn() {
#define XCUDA_FUNCTION(name, parameters) {"cudnn" #name, reinterpret_cast<void**>(&dnn.name)},
  const bool found = load_library({"libcudnn.so.9", "libcudnn.so.8"},
                                  {XCUDA_CUDNN_FUNCTIONS(XCUDA_FUNCTION) //
                                   {"cudnnGetErrorString", reinterpret_cast<void**>(&error_string)},
                                   {"cudnnGetCudartVersion", reinterpret_cast<void**>(&cudart_version)}},
                                  "convolutions are generated kernels");
#undef XCUDA_FUNCTION
  constexpr size_t kMajor = 1000;
  if (!found || cudart_version() / kMajor <= static_cast<size_t>(driver_version()) / kMajor) return found;
  host().log(TB_LOG_DEBUG,
             "xcuda: convolutions are generated kernels: cuDNN is made for a newer CUDA than the driver's");
  return false;
}

result check_cudnn(cudnnStatus_t error, const char* what) {
  if (error == kCUDNN_STATUS_SUCCESS) return {};
  if (result lost = check_device(what); !lost.ok()) return lost;
  return failure(status_of(error), "%s: %s (%d)", what, error_string(error), error);
}

} // namespace xcuda
