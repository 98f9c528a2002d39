#include "cl.h"

#include <dlfcn.h>

namespace ocl {

functions cl;

result load_functions() {
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return failure(TB_STATUS_UNSUPPORTED,
                   "OpenCL's loader is not installed (%s). Install it and a driver: on Debian and Ubuntu "
                   "apt-get install ocl-icd-libopencl1 pocl-opencl-icd",
                   dlerror());
#define OCL_LOAD(name) cl.name = reinterpret_cast<decltype(cl.name)>(dlsym(library, "cl" #name));
#define OCL_NEED(name)                                                         \
  if (!cl.name)                                                                \
    return failure(TB_STATUS_UNSUPPORTED, "libOpenCL.so.1 has no cl" #name     \
                                          ": it is older than OpenCL 1.2. On " \
                                          "Debian and Ubuntu: apt-get install ocl-icd-libopencl1");
  OCL_FUNCTIONS(OCL_LOAD)
  OCL_SVM_FUNCTIONS(OCL_LOAD)
  OCL_FUNCTIONS(OCL_NEED)
#undef OCL_LOAD
#undef OCL_NEED
  return {};
}

std::string error_text(cl_int error) {
  switch (error) {
#define OCL_CASE(name) \
  case name:           \
    return #name " (" + std::to_string(error) + ")";
    OCL_CASE(CL_DEVICE_NOT_FOUND)
    OCL_CASE(CL_DEVICE_NOT_AVAILABLE)
    OCL_CASE(CL_COMPILER_NOT_AVAILABLE)
    OCL_CASE(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    OCL_CASE(CL_OUT_OF_RESOURCES)
    OCL_CASE(CL_OUT_OF_HOST_MEMORY)
    OCL_CASE(CL_MEM_COPY_OVERLAP)
    OCL_CASE(CL_BUILD_PROGRAM_FAILURE)
    OCL_CASE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    OCL_CASE(CL_INVALID_VALUE)
    OCL_CASE(CL_INVALID_DEVICE)
    OCL_CASE(CL_INVALID_BINARY)
    OCL_CASE(CL_INVALID_BUILD_OPTIONS)
    OCL_CASE(CL_INVALID_KERNEL_NAME)
    OCL_CASE(CL_INVALID_ARG_INDEX)
    OCL_CASE(CL_INVALID_ARG_VALUE)
    OCL_CASE(CL_INVALID_ARG_SIZE)
    OCL_CASE(CL_INVALID_KERNEL_ARGS)
    OCL_CASE(CL_INVALID_WORK_GROUP_SIZE)
    OCL_CASE(CL_INVALID_WORK_ITEM_SIZE)
    OCL_CASE(CL_INVALID_BUFFER_SIZE)
    OCL_CASE(CL_INVALID_OPERATION)
#undef OCL_CASE
  }
  return "OpenCL's error " + std::to_string(error);
}

namespace {

tb_status status_of(cl_int error) {
  switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
      return TB_STATUS_OUT_OF_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
      return TB_STATUS_DEVICE_LOST;
    case CL_INVALID_KERNEL_NAME:
    case CL_INVALID_ARG_INDEX:
    case CL_INVALID_ARG_VALUE:
    case CL_INVALID_ARG_SIZE:
    case CL_INVALID_KERNEL_ARGS:
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE:
      return TB_STATUS_INVALID_ARGUMENT;
    default:
      return TB_STATUS_INTERNAL;
  }
}

} // namespace

result check(cl_int error, const char* what) {
  if (error == CL_SUCCESS) return {};
  return failure(status_of(error), "%s: %s", what, error_text(error).c_str());
}

} // namespace ocl
