#include "nccl.h"

#include <dlfcn.h>

#include <string>

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
  std::string missing;
  void* library = open_library({"libnccl.so.2"}, &missing);
  if (library) {
    missing.clear();
#define XCUDA_LOAD(name, parameters)                                               \
  nccl.name = reinterpret_cast<decltype(nccl.name)>(dlsym(library, "nccl" #name)); \
  if (!nccl.name) missing = "libnccl.so.2 has no nccl" #name;
    XCUDA_NCCL_FUNCTIONS(XCUDA_LOAD)
#undef XCUDA_LOAD
    error_string = reinterpret_cast<decltype(error_string)>(dlsym(library, "ncclGetErrorString"));
    last_error = reinterpret_cast<decltype(last_error)>(dlsym(library, "ncclGetLastError"));
  }
  if (!missing.empty()) host().log(TB_LOG_DEBUG, ("xcuda: no collectives of the device's own: " + missing).c_str());
  return missing.empty();
}

result check_nccl(ncclResult_t error, const char* what) {
  if (error == kncclSuccess) return {};
  const char* text = error_string ? error_string(error) : "NCCL's error";
  const char* more = last_error ? last_error(nullptr) : nullptr;
  return failure(status_of(error), "%s: %s (%d)%s%s", what, text, error, more && *more ? ": " : "", more ? more : "");
}

} // namespace xcuda
