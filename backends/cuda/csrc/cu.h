// What is used of the CUDA driver API, declared here so that no CUDA has to be installed, and its errors as results.
//
// Names and values are those of cuda.h; backends/cuda/test/declarations.cpp compares them where there is one.
#pragma once

#include <cstddef>
#include <string>

#include "result.h"

extern "C" {
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUmemPoolHandle_st;
}

namespace xcuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = CUctx_st*;
using CUstream = CUstream_st*;
using CUevent = CUevent_st*;
using CUmodule = CUmod_st*;
using CUfunction = CUfunc_st*;
using CUgraph = CUgraph_st*;
using CUgraphExec = CUgraphExec_st*;
using CUmemoryPool = CUmemPoolHandle_st*;
using CUmemGenericAllocationHandle = unsigned long long;
using CUhostFn = void (*)(void*);

struct CUuuid {
  char bytes[16];
};
struct CUipcMemHandle {
  char reserved[64];
};
struct CUmemLocation {
  int type, id;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};
struct CUmemAllocationProp {
  int type, requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  unsigned char allocFlags[8];
};
struct CUDA_MEMCPY2D {
  size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
};

// X(name, value), of those that something is done about
#define XCUDA_CONSTANTS(X)                                        \
  X(CUDA_SUCCESS, 0)                                              \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                  \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                  \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                                \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                                  \
  X(CUDA_ERROR_NO_DEVICE, 100)                                    \
  X(CUDA_ERROR_INVALID_IMAGE, 200)                                \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                            \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                            \
  X(CUDA_ERROR_INVALID_PTX, 218)                                  \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                         \
  X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221)                       \
  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                      \
  X(CUDA_ERROR_CONTAINED, 226)                                    \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                               \
  X(CUDA_ERROR_NOT_FOUND, 500)                                    \
  X(CUDA_ERROR_NOT_READY, 600)                                    \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                              \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                               \
  X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                  \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                         \
  X(CUDA_ERROR_ASSERT, 710)                                       \
  X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)               \
  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                   \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                         \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                          \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                           \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                        \
  X(CUDA_ERROR_INVALID_PC, 718)                                   \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                                \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                                \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                       \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                   \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                  \
  X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                 \
  X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 2)                       \
  X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 5)                        \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)           \
  X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                            \
  X(CU_DEVICE_ATTRIBUTE_MAX_PITCH, 11)                            \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                 \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)             \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)             \
  X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88)               \
  X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102) \
  X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)              \
  X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                          \
  X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                       \
  X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                    \
  X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                          \
  X(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)                      \
  X(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 5)                      \
  X(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 7)                          \
  X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                               \
  X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                        \
  X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                             \
  X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                      \
  X(CU_MEMORYTYPE_HOST, 1)                                        \
  X(CU_MEMORYTYPE_DEVICE, 2)                                      \
  X(CU_MEMHOSTALLOC_PORTABLE, 1)                                  \
  X(CU_MEMHOSTREGISTER_PORTABLE, 1)                               \
  X(CU_STREAM_NON_BLOCKING, 1)                                    \
  X(CU_STREAM_WAIT_VALUE_GEQ, 0)                                  \
  X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                             \
  X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                            \
  X(CU_EVENT_BLOCKING_SYNC, 1)                                    \
  X(CU_EVENT_DISABLE_TIMING, 2)                                   \
  X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)

#define XCUDA_CONSTANT(name, value) constexpr int k##name = value;
XCUDA_CONSTANTS(XCUDA_CONSTANT)
#undef XCUDA_CONSTANT

// X(name, what follows it in the library, parameters): cuMemAlloc_v2 is cu.MemAlloc.
#define XCUDA_FUNCTIONS(X)                                                                                             \
  X(Init, "", (unsigned flags))                                                                                        \
  X(DriverGetVersion, "", (int* version))                                                                              \
  X(GetErrorName, "", (CUresult error, const char** text))                                                             \
  X(GetErrorString, "", (CUresult error, const char** text))                                                           \
  X(DeviceGetCount, "", (int* count))                                                                                  \
  X(DeviceGet, "", (CUdevice * device, int ordinal))                                                                   \
  X(DeviceGetName, "", (char* name, int size, CUdevice device))                                                        \
  X(DeviceGetAttribute, "", (int* value, int attribute, CUdevice device))                                              \
  X(DeviceTotalMem, "_v2", (size_t* bytes, CUdevice device))                                                           \
  X(DeviceGetUuid, "_v2", (CUuuid * uuid, CUdevice device))                                                            \
  X(DeviceCanAccessPeer, "", (int* can, CUdevice device, CUdevice peer))                                               \
  X(DevicePrimaryCtxRetain, "", (CUcontext * context, CUdevice device))                                                \
  X(CtxGetCurrent, "", (CUcontext * context))                                                                          \
  X(CtxSetCurrent, "", (CUcontext context))                                                                            \
  X(CtxPushCurrent, "_v2", (CUcontext context))                                                                        \
  X(CtxPopCurrent, "_v2", (CUcontext * context))                                                                       \
  X(CtxEnablePeerAccess, "", (CUcontext peer, unsigned flags))                                                         \
  X(MemGetInfo, "_v2", (size_t* free_bytes, size_t* total_bytes))                                                      \
  X(MemAlloc, "_v2", (CUdeviceptr * address, size_t bytes))                                                            \
  X(MemFree, "_v2", (CUdeviceptr address))                                                                             \
  X(MemAllocAsync, "", (CUdeviceptr * address, size_t bytes, CUstream stream))                                         \
  X(MemFreeAsync, "", (CUdeviceptr address, CUstream stream))                                                          \
  X(DeviceGetMemPool, "", (CUmemoryPool * pool, CUdevice device))                                                      \
  X(MemPoolGetAttribute, "", (CUmemoryPool pool, int attribute, void* value))                                          \
  X(MemPoolSetAccess, "", (CUmemoryPool pool, const CUmemAccessDesc* accesses, size_t count))                          \
  X(MemGetAllocationGranularity, "", (size_t* granularity, const CUmemAllocationProp* properties, int option))         \
  X(MemAddressReserve, "",                                                                                             \
    (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags))                 \
  X(MemAddressFree, "", (CUdeviceptr address, size_t bytes))                                                           \
  X(MemCreate, "",                                                                                                     \
    (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp* properties,                       \
     unsigned long long flags))                                                                                        \
  X(MemRelease, "", (CUmemGenericAllocationHandle handle))                                                             \
  X(MemMap, "",                                                                                                        \
    (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
  X(MemUnmap, "", (CUdeviceptr address, size_t bytes))                                                                 \
  X(MemSetAccess, "", (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses, size_t count))              \
  X(MemHostAlloc, "", (void** address, size_t bytes, unsigned flags))                                                  \
  X(MemFreeHost, "", (void* address))                                                                                  \
  X(MemHostRegister, "_v2", (void* address, size_t bytes, unsigned flags))                                             \
  X(MemHostUnregister, "", (void* address))                                                                            \
  X(MemHostGetDevicePointer, "_v2", (CUdeviceptr * address, void* host_address, unsigned flags))                       \
  X(PointerGetAttributes, "", (unsigned count, int* attributes, void** values, CUdeviceptr address))                   \
  X(MemcpyHtoDAsync, "_v2", (CUdeviceptr dst, const void* src, size_t bytes, CUstream stream))                         \
  X(MemcpyDtoHAsync, "_v2", (void* dst, CUdeviceptr src, size_t bytes, CUstream stream))                               \
  X(MemcpyDtoDAsync, "_v2", (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                         \
  X(MemcpyPeerAsync, "",                                                                                               \
    (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes, CUstream stream))   \
  X(Memcpy2DAsync, "_v2", (const CUDA_MEMCPY2D* copy, CUstream stream))                                                \
  X(MemsetD8Async, "", (CUdeviceptr address, unsigned char value, size_t count, CUstream stream))                      \
  X(MemsetD16Async, "", (CUdeviceptr address, unsigned short value, size_t count, CUstream stream))                    \
  X(MemsetD32Async, "", (CUdeviceptr address, unsigned value, size_t count, CUstream stream))                          \
  X(MemsetD2D32Async, "",                                                                                              \
    (CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream))                 \
  X(StreamCreateWithPriority, "", (CUstream * stream, unsigned flags, int priority))                                   \
  X(StreamDestroy, "_v2", (CUstream stream))                                                                           \
  X(StreamSynchronize, "", (CUstream stream))                                                                          \
  X(StreamQuery, "", (CUstream stream))                                                                                \
  X(StreamWaitEvent, "", (CUstream stream, CUevent event, unsigned flags))                                             \
  X(StreamWaitValue32, "_v2", (CUstream stream, CUdeviceptr address, unsigned value, unsigned flags))                  \
  X(LaunchHostFunc, "", (CUstream stream, CUhostFn function, void* argument))                                          \
  X(StreamIsCapturing, "", (CUstream stream, int* status))                                                             \
  X(StreamBeginCapture, "_v2", (CUstream stream, int mode))                                                            \
  X(StreamEndCapture, "", (CUstream stream, CUgraph * graph))                                                          \
  X(ThreadExchangeStreamCaptureMode, "", (int* mode))                                                                  \
  X(GraphInstantiateWithFlags, "", (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                      \
  X(GraphLaunch, "", (CUgraphExec exec, CUstream stream))                                                              \
  X(GraphDestroy, "", (CUgraph graph))                                                                                 \
  X(GraphExecDestroy, "", (CUgraphExec exec))                                                                          \
  X(EventCreate, "", (CUevent * event, unsigned flags))                                                                \
  X(EventDestroy, "_v2", (CUevent event))                                                                              \
  X(EventRecord, "", (CUevent event, CUstream stream))                                                                 \
  X(EventQuery, "", (CUevent event))                                                                                   \
  X(EventSynchronize, "", (CUevent event))                                                                             \
  X(EventElapsedTime, "", (float* milliseconds, CUevent start, CUevent end))                                           \
  X(IpcGetMemHandle, "", (CUipcMemHandle * handle, CUdeviceptr address))                                               \
  X(IpcOpenMemHandle, "_v2", (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags))                           \
  X(IpcCloseMemHandle, "", (CUdeviceptr address))                                                                      \
  X(ModuleLoadDataEx, "", (CUmodule * module, const void* image, unsigned count, int* options, void** values))         \
  X(ModuleUnload, "", (CUmodule module))                                                                               \
  X(ModuleGetFunction, "", (CUfunction * function, CUmodule module, const char* name))                                 \
  X(LaunchKernel, "",                                                                                                  \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,       \
     unsigned block_z, unsigned shared_bytes, CUstream stream, void** params, void** extra))

struct functions {
#define XCUDA_MEMBER(name, suffix, parameters) CUresult(*name) parameters;
  XCUDA_FUNCTIONS(XCUDA_MEMBER)
#undef XCUDA_MEMBER
};

// Constant from load_functions on.
extern functions cu;

// Opens libcuda.so.1, which starts nothing yet. Fails with what to install.
result load_functions();

// What cuInit says, with what to do about it.
result start_driver();

// The CUDA version that the driver is made for: 12080 for 12.8.
int driver_version();

// "CUDA_ERROR_INVALID_VALUE (1): invalid argument"
std::string error_text(CUresult error);

// OK for CUDA_SUCCESS. `what` is what was tried: the slot's name, mostly.
result check(CUresult error, const char* what);

// Whether the thread's device is lost, which the driver knows better than the libraries over it.
result check_device(const char* what);

inline CUdeviceptr address_of(const void* ptr) {
  return reinterpret_cast<CUdeviceptr>(ptr);
}

} // namespace xcuda
