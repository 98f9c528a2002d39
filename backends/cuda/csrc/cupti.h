// What is used of CUPTI and NVTX, declared here so that neither has to be installed, and CUPTI's errors as results.
//
// Names and values are those of cupti.h; backends/cuda/test/declarations.cpp compares them where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cu.h"
#include "result.h"

extern "C" struct CUpti_Subscriber_st;

namespace xcuda {

using CUptiResult = int;
using CUpti_SubscriberHandle = CUpti_Subscriber_st*;
using CUpti_CallbackFunc = void (*)(void* userdata, int domain, uint32_t id, const void* data);
using CUpti_BuffersCallbackRequestFunc = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
using CUpti_BuffersCallbackCompleteFunc = void (*)(CUcontext, uint32_t, uint8_t* buffer, size_t size, size_t valid);

// The beginnings of records, which are the same in all versions; what follows is not.
struct alignas(8) CUpti_Activity {
  int kind;
};
struct cupti_kernel {
  int kind;
  uint32_t configuration[3];
  uint64_t start, end, completed;
  uint32_t deviceId, contextId, streamId;
  int32_t grid[3], block[3], staticSharedMemory, dynamicSharedMemory;
  uint32_t localMemoryPerThread, localMemoryTotal, correlationId;
  int64_t gridId;
  const char* name;
};
struct cupti_memory { // of copies and fills
  int kind;
  uint8_t copyKind, srcKind, dstKind, flags;
  uint64_t bytes, start, end;
  uint32_t deviceId, contextId, streamId, correlationId;
};
struct cupti_peer_copy {
  cupti_memory copy; // whose correlationId is another number
  uint32_t others[3], correlationId;
};
struct CUpti_ActivityExternalCorrelation {
  int kind, externalKind;
  uint64_t externalId;
  uint32_t correlationId, reserved;
};

// X(name, value)
#define XCUDA_CUPTI_CONSTANTS(X)                        \
  X(CUPTI_SUCCESS, 0)                                   \
  X(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 39) \
  X(CUPTI_ACTIVITY_KIND_MEMCPY, 1)                      \
  X(CUPTI_ACTIVITY_KIND_MEMSET, 2)                      \
  X(CUPTI_ACTIVITY_KIND_DRIVER, 4)                      \
  X(CUPTI_ACTIVITY_KIND_RUNTIME, 5)                     \
  X(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 10)          \
  X(CUPTI_ACTIVITY_KIND_MEMCPY2, 22)                    \
  X(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, 39)       \
  X(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, 5)         \
  X(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, 1)                \
  X(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, 1)                 \
  X(CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 2)                 \
  X(CUPTI_ACTIVITY_MEMCPY_KIND_PTOP, 10)                \
  X(CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, 1)             \
  X(CUPTI_ACTIVITY_MEMORY_KIND_PINNED, 2)               \
  X(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 3)

#define XCUDA_CONSTANT(name, value) constexpr int k##name = value;
XCUDA_CUPTI_CONSTANTS(XCUDA_CONSTANT)
#undef XCUDA_CONSTANT

// X(name, parameters): cuptiSubscribe is cupti.Subscribe.
#define XCUDA_CUPTI_FUNCTIONS(X)                                                                   \
  X(Subscribe, (CUpti_SubscriberHandle * subscriber, CUpti_CallbackFunc callback, void* userdata)) \
  X(Unsubscribe, (CUpti_SubscriberHandle subscriber))                                              \
  X(ActivityRegisterCallbacks,                                                                     \
    (CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed))     \
  X(ActivityEnable, (int kind))                                                                    \
  X(ActivityDisable, (int kind))                                                                   \
  X(ActivityFlushAll, (uint32_t flag))                                                             \
  X(ActivityGetNextRecord, (uint8_t* buffer, size_t valid, CUpti_Activity** record))               \
  X(ActivityPushExternalCorrelationId, (int kind, uint64_t id))                                    \
  X(ActivityPopExternalCorrelationId, (int kind, uint64_t* last))                                  \
  X(GetTimestamp, (uint64_t* timestamp))                                                           \
  X(GetStreamIdEx, (CUcontext context, CUstream stream, uint8_t per_thread, uint32_t* id))         \
  X(GetResultString, (CUptiResult error, const char** text))

struct cupti_functions {
#define XCUDA_MEMBER(name, parameters) CUptiResult(*name) parameters;
  XCUDA_CUPTI_FUNCTIONS(XCUDA_MEMBER)
#undef XCUDA_MEMBER
};

struct nvtx_functions {
  int (*RangePushA)(const char* name);
  int (*RangePop)();
};

// Constant from load_cupti on.
extern cupti_functions cupti;
extern nvtx_functions nvtx; // null where it is not installed

// False if no CUPTI for the driver's CUDA is installed, or it lacks a function; the debug log says which.
bool load_cupti();

// OK for CUPTI_SUCCESS. `what` is what was tried.
result check_cupti(CUptiResult error, const char* what);

} // namespace xcuda
