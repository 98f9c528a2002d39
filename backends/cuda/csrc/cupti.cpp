#include "cupti.h"

#include "library.h"

namespace xcuda {

cupti_functions cupti;
nvtx_functions nvtx;

bool load_cupti() {
  if (!load_library({"libnvToolsExt.so.1", "libnvtx3interop.so.1"},
                    {{"nvtxRangePushA", reinterpret_cast<void**>(&nvtx.RangePushA)},
                     {"nvtxRangePop", reinterpret_cast<void**>(&nvtx.RangePop)}},
                    "no ranges for NVIDIA's tools"))
    nvtx = {};
#define XCUDA_FUNCTION(name, parameters) {"cupti" #name, reinterpret_cast<void**>(&cupti.name)},
  return load_library(versions_of("libcupti.so"), {XCUDA_CUPTI_FUNCTIONS(XCUDA_FUNCTION)},
                      "what the device does is timed by events");
#undef XCUDA_FUNCTION
}

result check_cupti(CUptiResult error, const char* what) {
  if (error == kCUPTI_SUCCESS) return {};
  const char* text = nullptr;
  if (error == kCUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    return failure(TB_STATUS_UNSUPPORTED,
                   "CUPTI serves one profiler at a time, and has one: torch.profiler with CUDA's activities, or a tool "
                   "such as Nsight Systems. End that, or do without device trace");
  if (cupti.GetResultString(error, &text) != kCUPTI_SUCCESS || !text) text = "CUPTI's error";
  return failure(TB_STATUS_INTERNAL, "%s: %s (%d)", what, text, error);
}

} // namespace xcuda
