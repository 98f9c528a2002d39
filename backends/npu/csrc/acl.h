// AscendCL as this plugin knows it: declarations of our own, resolved in libascendcl.so when the plugin is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "result.h"

namespace npu {

// Handles of AscendCL.
using acl_stream = void*;
using acl_event = void*;
using acl_memory = void*;

// aclError
constexpr int kAclSuccess = 0;
constexpr int kAclRepeatedInitialize = 100002;

// aclrtMemcpyKind
constexpr int kAclHostToDevice = 1;
constexpr int kAclDeviceToHost = 2;
constexpr int kAclDeviceToDevice = 3; // of the same device, or of two that may access each other

constexpr int kAclHugeFirst = 0;     // aclrtMemMallocPolicy: pages of 2 MiB where there are any
constexpr int kAclHbm = 1;           // aclrtMemAttr: pages of any size ...
constexpr int kAclHbmHuge = 4;       // ... and of 2 MiB
constexpr int kAclAiCoreCount = 101; // aclrtDevAttr

constexpr int kAclLocationDevice = 1;         // aclrtMemLocationType
constexpr int kAclGranularityRecommended = 1; // aclrtMemGranularityOptions
constexpr uint64_t kAclReserveHuge = 1;       // addresses for pages of 2 MiB

constexpr uint32_t kAclEventSync = 1;     // streams may wait for the event
constexpr uint32_t kAclEventTimeline = 8; // the event has a time
constexpr uint32_t kAclStreamFastLaunch = 1;
constexpr uint32_t kAclStreamFastSync = 2;

// Queries of events and of streams answer with numbers of opposite meaning.
constexpr int kAclEventComplete = 1;
constexpr int kAclStreamComplete = 0;

// aclrtMemLocation
struct acl_location {
  uint32_t id;
  int type;
};

// aclrtPhysicalMemProp. Handles of other types and other allocation types than 0 are not defined.
struct acl_memory_properties {
  int handle_type;
  int allocation_type;
  int attribute;
  acl_location location;
  uint64_t reserved;
};

// X(name, parameters): the plugin does not load without them.
#define NPU_ACL_NEEDED(X)                                                                                     \
  X(aclInit, (const char* config_path))                                                                       \
  X(aclrtGetDeviceCount, (uint32_t* count))                                                                   \
  X(aclrtSetDevice, (int32_t device))                                                                         \
  X(aclrtGetDevice, (int32_t* device))                                                                        \
  X(aclrtSynchronizeDevice, ())                                                                               \
  X(aclrtGetMemInfo, (int attribute, size_t* free, size_t* total))                                            \
  X(aclrtMallocAlign32, (void** ptr, size_t size, int policy))                                                \
  X(aclrtFree, (void* ptr))                                                                                   \
  X(aclrtMallocHost, (void** ptr, size_t size))                                                               \
  X(aclrtFreeHost, (void* ptr))                                                                               \
  X(aclrtMemcpy, (void* dst, size_t dst_max, const void* src, size_t size, int kind))                         \
  X(aclrtMemcpyAsync, (void* dst, size_t dst_max, const void* src, size_t size, int kind, acl_stream stream)) \
  X(aclrtMemsetAsync, (void* ptr, size_t max, int32_t value, size_t size, acl_stream stream))                 \
  X(aclrtCreateStreamWithConfig, (acl_stream * stream, uint32_t priority, uint32_t flags))                    \
  X(aclrtSynchronizeStream, (acl_stream stream))                                                              \
  X(aclrtStreamQuery, (acl_stream stream, int* status))                                                       \
  X(aclrtStreamWaitEvent, (acl_stream stream, acl_event event))                                               \
  X(aclrtCreateEventExWithFlag, (acl_event * event, uint32_t flags))                                          \
  X(aclrtRecordEvent, (acl_event event, acl_stream stream))                                                   \
  X(aclrtQueryEventStatus, (acl_event event, int* status))                                                    \
  X(aclrtSynchronizeEvent, (acl_event event))                                                                 \
  X(aclrtEventElapsedTime, (float* ms, acl_event start, acl_event end))

// Null where CANN is too old to have them.
#define NPU_ACL_OPTIONAL(X)                                                                                           \
  X(aclrtGetDeviceInfo, (uint32_t device, int attribute, int64_t* value))                                             \
  X(aclrtGetVersion, (int32_t* major, int32_t* minor, int32_t* patch))                                                \
  X(aclrtDeviceGetStreamPriorityRange, (int32_t* lowest, int32_t* highest))                                           \
  X(aclrtDeviceCanAccessPeer, (int32_t* can, int32_t device, int32_t peer))                                           \
  X(aclrtDeviceEnablePeerAccess, (int32_t peer, uint32_t flags))                                                      \
  X(aclrtMemGetAllocationGranularity, (const acl_memory_properties* properties, int option, size_t* bytes))           \
  X(aclrtReserveMemAddress, (void** ptr, size_t size, size_t alignment, void* at, uint64_t flags))                    \
  X(aclrtReleaseMemAddress, (void* ptr))                                                                              \
  X(aclrtMallocPhysical, (acl_memory * memory, size_t size, const acl_memory_properties* properties, uint64_t flags)) \
  X(aclrtFreePhysical, (acl_memory memory))                                                                           \
  X(aclrtMapMem, (void* ptr, size_t size, size_t offset, acl_memory memory, uint64_t flags))                          \
  X(aclrtUnmapMem, (void* ptr))                                                                                       \
  X(aclrtSubscribeReport, (uint64_t thread, acl_stream stream))                                                       \
  X(aclrtProcessReport, (int32_t timeout_ms))                                                                         \
  X(aclrtLaunchCallback, (void (*function)(void*), void* argument, int block, acl_stream stream))

struct acl_functions {
#define NPU_MEMBER(name, parameters) int(*name) parameters;
  NPU_ACL_NEEDED(NPU_MEMBER)
  NPU_ACL_OPTIONAL(NPU_MEMBER)
#undef NPU_MEMBER
  const char* (*aclGetRecentErrMsg)();
  const char* (*aclrtGetSocName)();
};

// Constant from load_acl on.
extern acl_functions acl;

// Opens libascendcl.so. Fails with what is missing: CANN, or a function that this plugin needs.
result load_acl();

// A library of CANN from where libascendcl.so is looked for; null if there is none, and dlerror() tells why.
void* open_library(const char* file);

// OK for 0. `what` is the function that returned `error`. The text has what CANN itself says of it.
result check(int error, const char* what);

} // namespace npu
