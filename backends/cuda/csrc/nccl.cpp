#include "nccl.h"

#include <dlfcn.h>

#include "library.h"

namespace xcuda {

nccl_functions nccl;

namespace {

const char* (*error_string)(ncclResult_t) = nullptr;
const char* (*last_error)(ncclComm_t) = nullptr; // not in all versions

tb_status status_of(ncclResult_t error) {
  switch (error) {
    case kncclSuccess:
      return TB_STATUS_OK;
    case kncclInvalidArgument:
    case kncclInvalidUsage:
      return TB_STATUS_INVALID_ARGUMENT;
    case kncclInProgress:
      return TB_STATUS_NOT_READY;
    default:
      return TB_STATUS_INTERNAL;
  }
}

} // namespace

bool load_nccl() {
#define XCUDA_FUNCTION(name, parameters) {"nccl" #name, reinterpret_cast<void**>(&nccl.name)},
  void* library = load_library({"libnccl.so.2"},
                               {XCUDA_NCCL_FUNCTIONS(XCUDA_FUNCTION) //
                                {"ncclGetErrorString", reinterpret_cast<void**>(&error_string)}},
                               "no collectives of the device's own");
#undef XCUDA_FUNCTION
  if (library) last_error = reinterpret_cast<decltype(last_error)>(dlsym(library, "ncclGetLastError"));
  return library;
}

result check_nccl(ncclResult_t error, const char* what) {
  if (error == kncclSuccess) return {};
  const char* more = last_error ? last_error(nullptr) : nullptr;
  return failure(status_of(error), "%s: %s (%d)%s%s", what, error_string(error), error, more && *more ? ": " : "",
                 more ? more : "");
}

} // namespace xcuda
