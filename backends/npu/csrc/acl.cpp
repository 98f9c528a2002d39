#include "acl.h"

#include <dlfcn.h>

#include <cstdlib>

#include "options.h"

namespace npu {

acl_functions acl;

void* open_library(const char* file) {
  if (!settings().path.empty()) return dlopen((settings().path + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  const char* home = std::getenv("ASCEND_HOME_PATH"); // which CANN's set_env.sh sets
  if (library || !home) return library;
  const std::string path = std::string(home) + "/lib64/" + file;
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

result load_acl() {
  void* library = open_library("libascendcl.so");
  if (!library) {
    const char* reason = dlerror();
    return failure(TB_STATUS_UNSUPPORTED,
                   "CANN is not installed, or not where it is looked for (%s). Install the CANN toolkit and source its "
                   "set_env.sh, or name the folder of libascendcl.so in npu.path",
                   reason ? reason : "no libascendcl.so");
  }
#define NPU_LOAD(name, parameters) acl.name = reinterpret_cast<decltype(acl.name)>(dlsym(library, #name));
#define NPU_NEED(name, parameters)                                       \
  if (!acl.name)                                                         \
    return failure(TB_STATUS_UNSUPPORTED, "libascendcl.so has no " #name \
                                          ": this CANN is too old, or "  \
                                          "another library has the name. Install CANN 8.0 or later");
  NPU_ACL_NEEDED(NPU_LOAD)
  NPU_ACL_OPTIONAL(NPU_LOAD)
  NPU_LOAD(aclGetRecentErrMsg, )
  NPU_LOAD(aclrtGetSocName, )
  NPU_ACL_NEEDED(NPU_NEED)
#undef NPU_LOAD
#undef NPU_NEED
  return {};
}

namespace {

struct known_error {
  int code;
  tb_status status;
  const char* text;
};

constexpr known_error kKnownErrors[] = {
    {107001, TB_STATUS_INVALID_ARGUMENT, "no such device"},
    {107002, TB_STATUS_INTERNAL, "the calling thread has no device"},
    {107003, TB_STATUS_INVALID_ARGUMENT, "the stream is of another device"},
    {107006, TB_STATUS_INVALID_ARGUMENT, "the event has no time"},
    {107020, TB_STATUS_TIMEOUT, "waiting for a stream took too long"},
    {107022, TB_STATUS_DEVICE_LOST, "the device has stopped its tasks"},
    {207000, TB_STATUS_UNSUPPORTED, "not supported"},
    {207001, TB_STATUS_OUT_OF_MEMORY, "out of memory"},
    {207018, TB_STATUS_OUT_OF_MEMORY, "out of memory"},
    {507010, TB_STATUS_DEVICE_LOST, "the device does not answer"},
    {507014, TB_STATUS_INTERNAL, "a kernel ran too long"},
    {507015, TB_STATUS_INTERNAL, "a kernel failed"},
    {507053, TB_STATUS_DEVICE_LOST, "the device's memory is damaged"},
    {507054, TB_STATUS_DEVICE_LOST, "the device's memory is damaged"},
};

} // namespace

result check(int error, const char* what) {
  if (error == kAclSuccess) return {};
  known_error found{error, TB_STATUS_INTERNAL, "failed"};
  for (const known_error& known : kKnownErrors)
    if (known.code == error) found = known;
  const char* more = acl.aclGetRecentErrMsg ? acl.aclGetRecentErrMsg() : nullptr; // of this thread
  return failure(found.status, "%s: %s (%d)%s%s", what, found.text, error, more && *more ? ": " : "", more ? more : "");
}

} // namespace npu
