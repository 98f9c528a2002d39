#include "cu.h"

#include <dlfcn.h>

#include "library.h"

namespace xcuda {

functions cu;

namespace {

constexpr int kOldestVersion = 12000;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

result too_old(const std::string& why) {
  return failure(TB_STATUS_UNSUPPORTED, "NVIDIA's driver is too old: %s. xcuda needs CUDA %s, driver 525 or later",
                 why.c_str(), version_text(kOldestVersion).c_str());
}

tb_status status_of(CUresult error) {
  switch (error) {
    case kCUDA_SUCCESS:
      return TB_STATUS_OK;
    case kCUDA_ERROR_NOT_READY:
      return TB_STATUS_NOT_READY;
    case kCUDA_ERROR_OUT_OF_MEMORY:
      return TB_STATUS_OUT_OF_MEMORY;
    case kCUDA_ERROR_NOT_SUPPORTED:
      return TB_STATUS_UNSUPPORTED;
    case kCUDA_ERROR_INVALID_VALUE:
    case kCUDA_ERROR_INVALID_HANDLE:
    case kCUDA_ERROR_NOT_FOUND:
    case kCUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case kCUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
      return TB_STATUS_INVALID_ARGUMENT;
    // After these every call that uses the context fails.
    case kCUDA_ERROR_ECC_UNCORRECTABLE:
    case kCUDA_ERROR_NVLINK_UNCORRECTABLE:
    case kCUDA_ERROR_CONTAINED:
    case kCUDA_ERROR_ILLEGAL_ADDRESS:
    case kCUDA_ERROR_LAUNCH_TIMEOUT:
    case kCUDA_ERROR_CONTEXT_IS_DESTROYED:
    case kCUDA_ERROR_ASSERT:
    case kCUDA_ERROR_HARDWARE_STACK_ERROR:
    case kCUDA_ERROR_ILLEGAL_INSTRUCTION:
    case kCUDA_ERROR_MISALIGNED_ADDRESS:
    case kCUDA_ERROR_INVALID_ADDRESS_SPACE:
    case kCUDA_ERROR_INVALID_PC:
    case kCUDA_ERROR_LAUNCH_FAILED:
      return TB_STATUS_DEVICE_LOST;
    default:
      return error >= kCUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && error <= kCUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                 ? TB_STATUS_INVALID_ARGUMENT
                 : TB_STATUS_INTERNAL;
  }
}

} // namespace

result load_functions() {
  std::string tried;
  void* library = open_library({"libcuda.so.1"}, &tried);
  if (!library)
    return failure(
        TB_STATUS_UNSUPPORTED,
        "NVIDIA's driver is not installed (%s). Install it where there is a GPU: nvidia-smi shows whether it "
        "works",
        tried.c_str());
#define XCUDA_LOAD(name, suffix, parameters) \
  cu.name = reinterpret_cast<decltype(cu.name)>(dlsym(library, "cu" #name suffix));
#define XCUDA_NEED(name, suffix, parameters) \
  if (!cu.name) return too_old("libcuda.so.1 has no cu" #name suffix);
  XCUDA_FUNCTIONS(XCUDA_LOAD)
  XCUDA_FUNCTIONS(XCUDA_NEED)
#undef XCUDA_LOAD
#undef XCUDA_NEED
  if (driver_version() < kOldestVersion) return too_old("it is made for CUDA " + version_text(driver_version()));
  return {};
}

result start_driver() {
  const CUresult error = cu.Init(0);
  if (error == kCUDA_SUCCESS) return {};
  const char* advice = "nvidia-smi shows whether the driver works";
  if (error == kCUDA_ERROR_NO_DEVICE)
    advice = "The driver sees no GPU: nvidia-smi -L lists them, and CUDA_VISIBLE_DEVICES may hide them";
  if (error == kCUDA_ERROR_STUB_LIBRARY) advice = "libcuda.so.1 is the stub to link against, not the driver";
  if (error == kCUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
    advice = "The kernel's driver has another version than libcuda.so.1: restart the machine after an update";
  return failure(TB_STATUS_UNSUPPORTED, "cuInit: %s. %s", error_text(error).c_str(), advice);
}

int driver_version() {
  int version = 0;
  return cu.DriverGetVersion(&version) == kCUDA_SUCCESS ? version : 0;
}

std::string error_text(CUresult error) {
  const char *name = nullptr, *text = nullptr;
  if (cu.GetErrorName(error, &name) != kCUDA_SUCCESS || !name) return "CUDA's error " + std::to_string(error);
  cu.GetErrorString(error, &text);
  return std::string(name) + " (" + std::to_string(error) + ")" + (text ? std::string(": ") + text : "");
}

result check(CUresult error, const char* what) {
  if (error == kCUDA_SUCCESS) return {};
  if (error == kCUDA_ERROR_NOT_READY) return {TB_STATUS_NOT_READY, ""};
  return failure(status_of(error), "%s: %s", what, error_text(error).c_str());
}

result check_device(const char* what) {
  size_t free_bytes = 0, total_bytes = 0;
  result r = check(cu.MemGetInfo(&free_bytes, &total_bytes), what);
  return r.status == TB_STATUS_DEVICE_LOST ? r : result();
}

} // namespace xcuda
