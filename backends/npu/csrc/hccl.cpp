#include "hccl.h"

#include <dlfcn.h>

#include <string>

namespace npu {

hccl_functions hccl;

bool load_hccl() {
  void* library = open_library("libhccl.so");
  std::string missing = library ? "" : "libhccl.so";
#define NPU_LOAD(name, parameters)                                                       \
  if (library) hccl.name = reinterpret_cast<decltype(hccl.name)>(dlsym(library, #name)); \
  if (missing.empty() && !hccl.name) missing = #name;
  NPU_HCCL_NEEDED(NPU_LOAD)
#undef NPU_LOAD
  if (library)
    hccl.HcclGetErrorString = reinterpret_cast<decltype(hccl.HcclGetErrorString)>(dlsym(library, "HcclGetErrorString"));
  if (!missing.empty())
    host().log(TB_LOG_DEBUG, ("npu: no collectives of the device's own: CANN has no " + missing).c_str());
  return missing.empty();
}

result check_hccl(int error, const char* what) {
  tb_status status = TB_STATUS_INTERNAL;
  switch (error) {
    case 0:
      return {};
    case 1: // HCCL_E_PARA
    case 2: // HCCL_E_PTR
      status = TB_STATUS_INVALID_ARGUMENT;
      break;
    case 3: // HCCL_E_MEMORY
      status = TB_STATUS_OUT_OF_MEMORY;
      break;
    case 5: // HCCL_E_NOT_SUPPORT
      status = TB_STATUS_UNSUPPORTED;
      break;
    case 9: // HCCL_E_TIMEOUT
      status = TB_STATUS_TIMEOUT;
      break;
  }
  const char* text = hccl.HcclGetErrorString ? hccl.HcclGetErrorString(error) : nullptr;
  const char* more = acl.aclGetRecentErrMsg ? acl.aclGetRecentErrMsg() : nullptr;
  return failure(status, "%s: %s (%d)%s%s", what, text ? text : "failed", error, more && *more ? ": " : "",
                 more ? more : "");
}

} // namespace npu
