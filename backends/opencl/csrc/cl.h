// OpenCL's functions, from the ICD loader as it is at run time, and its error codes as results.
#pragma once

#define CL_TARGET_OPENCL_VERSION 200
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS // clCreateCommandQueue: all that a driver of OpenCL 1.2 has
#include <CL/cl.h>

#include <string>

#include "result.h"

namespace ocl {

// clFinish is cl.Finish.
#define OCL_FUNCTIONS(X)        \
  X(GetPlatformIDs)             \
  X(GetPlatformInfo)            \
  X(GetDeviceIDs)               \
  X(GetDeviceInfo)              \
  X(CreateContext)              \
  X(CreateCommandQueue)         \
  X(ReleaseCommandQueue)        \
  X(Flush)                      \
  X(CreateUserEvent)            \
  X(SetUserEventStatus)         \
  X(RetainEvent)                \
  X(ReleaseEvent)               \
  X(WaitForEvents)              \
  X(GetEventInfo)               \
  X(GetEventProfilingInfo)      \
  X(EnqueueMarkerWithWaitList)  \
  X(EnqueueBarrierWithWaitList) \
  X(CreateBuffer)               \
  X(ReleaseMemObject)           \
  X(EnqueueMapBuffer)           \
  X(EnqueueUnmapMemObject)      \
  X(EnqueueMigrateMemObjects)   \
  X(EnqueueReadBuffer)          \
  X(EnqueueWriteBuffer)         \
  X(EnqueueCopyBuffer)          \
  X(EnqueueReadBufferRect)      \
  X(EnqueueWriteBufferRect)     \
  X(EnqueueCopyBufferRect)      \
  X(EnqueueFillBuffer)          \
  X(CreateProgramWithSource)    \
  X(CreateProgramWithBinary)    \
  X(BuildProgram)               \
  X(GetProgramBuildInfo)        \
  X(GetProgramInfo)             \
  X(ReleaseProgram)             \
  X(CreateKernel)               \
  X(ReleaseKernel)              \
  X(SetKernelArg)               \
  X(EnqueueNDRangeKernel)

// Of OpenCL 2.0: null in an older loader.
#define OCL_SVM_FUNCTIONS(X) \
  X(SVMAlloc)                \
  X(SVMFree)                 \
  X(EnqueueSVMMemcpy)        \
  X(EnqueueSVMMemFill)       \
  X(SetKernelArgSVMPointer)

struct functions {
#define OCL_MEMBER(name) decltype(&::cl##name) name;
  OCL_FUNCTIONS(OCL_MEMBER)
  OCL_SVM_FUNCTIONS(OCL_MEMBER)
#undef OCL_MEMBER
};

// Constant from load_functions on.
extern functions cl;

// Opens the loader, which opens no driver yet. Fails with what to install.
result load_functions();

// "CL_OUT_OF_RESOURCES (-5)"
std::string error_text(cl_int error);

// OK for CL_SUCCESS. `what` is what was tried: the slot's name, mostly.
result check(cl_int error, const char* what);

// A string that a query gives, without trailing spaces; "" if the query fails.
template <typename Query, typename Object, typename Name>
std::string info_text(Query query, Object object, Name name) {
  size_t size = 0;
  if (query(object, name, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  if (query(object, name, size, text.data(), nullptr) != CL_SUCCESS) return "";
  text.resize(text.find_last_not_of(std::string(" \0", 2)) + 1);
  return text;
}

// A number or the like that a query gives; `otherwise` if it fails.
template <typename Value>
Value device_info(cl_device_id device, cl_device_info name, Value otherwise = {}) {
  Value value{};
  return cl.GetDeviceInfo(device, name, sizeof value, &value, nullptr) == CL_SUCCESS ? value : otherwise;
}

} // namespace ocl
