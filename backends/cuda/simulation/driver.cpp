// Start, errors, devices, contexts.
#include "driver.h"

#include <unistd.h>

#include <cstring>

const char* const sim::kPrefix = "CUDA_SIM";

namespace sim {

thread_local bool in_host_function = false;

namespace {

std::atomic<pid_t> started_in{0};
thread_local std::vector<CUcontext> stack;

constexpr uint64_t kAlignment = 256;

// The largest number that is one of 16 bits.
constexpr int kMaxGrid = 65535, kMaxBlock = 1024, kMaxBlockZ = 64;

int value_of(int attribute) {
  const int capability = setting("CAPABILITY", 90);
  switch (attribute) {
    case kCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case kCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case kCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + 1:
      return kMaxBlock;
    case kCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + 2:
      return kMaxBlockZ;
    case kCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 0x7fffffff;
    case kCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + 1:
    case kCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + 2:
      return kMaxGrid;
    case kCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return kSharedBytes;
    case kCU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case kCU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 0x7fffffff;
    case kCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return setting("MULTIPROCESSORS", 4);
    case kCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return capability / 10;
    case kCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return capability % 10;
    case kCU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
      return 0;
    case kCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return setting("VIRTUAL_MEMORY", 1);
    case kCU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return setting("POOLS", 1);
    default:
      return -1;
  }
}

} // namespace

int device_count() {
  return setting("DEVICES", 2);
}

CUcontext context_of(int device) {
  static std::mutex mutex; // guards all
  static auto& all = *new std::map<int, CUcontext>;
  const std::lock_guard<std::mutex> lock(mutex);
  CUcontext& context = all[device];
  if (!context) {
    auto* made = new CUctx_st;
    made->device = made->pool.device = device;
    made->memory = std::make_unique<arena>(uint64_t(setting("MEMORY_MIB", 2048)) << 20, kAlignment);
    made->streams.push_back(make<CUstream_st>()); // the default one
    made->streams.front()->context = made;
    context = registry<CUctx_st>::all().add(made);
  }
  return context;
}

int enter_free(const char* name) {
  if (started_in == 0) return kCUDA_ERROR_NOT_INITIALIZED; // how programs ask whether somebody has
  if (started_in != getpid()) return refuse(kCUDA_ERROR_NOT_INITIALIZED, "%s in a forked process", name);
  if (in_host_function) return refuse(kNotPermitted, "%s in a host function", name);
  if (const int fault = injected_fault(name)) return refuse(fault, "%s fails because CUDA_SIM_FAIL says so", name);
  return 0;
}

int enter(const char* name, CUcontext* out_context) {
  if (started_in == 0) return refuse(kCUDA_ERROR_NOT_INITIALIZED, "%s before cuInit", name);
  if (const int error = enter_free(name)) return error;
  if (stack.empty() || !stack.back()) return refuse(kInvalidContext, "%s on a thread without a context", name);
  *out_context = stack.back();
  if (const int error = (*out_context)->error) return refuse(error, "%s: the context is lost", name);
  return 0;
}

} // namespace sim

using namespace sim;

CU_API cuInit(unsigned flags) {
  if (flags) return refuse(kCUDA_ERROR_INVALID_VALUE, "cuInit(%u)", flags);
  if (const int fault = injected_fault("cuInit")) return refuse(fault, "cuInit fails because CUDA_SIM_FAIL says so");
  if (started_in && started_in != getpid()) return refuse(kCUDA_ERROR_NOT_INITIALIZED, "cuInit in a forked process");
  if (device_count() == 0) return kCUDA_ERROR_NO_DEVICE;
  started_in = getpid();
  return 0;
}

CU_API cuDriverGetVersion(int* version) {
  *version = setting("VERSION", 12080);
  return 0;
}

CU_API cuGetErrorName(CUresult error, const char** text) {
#define SIM_NAME(name, value) \
  if (value == error && std::strncmp(#name, "CUDA_", 5) == 0) return *text = #name, 0;
  XCUDA_CONSTANTS(SIM_NAME)
#undef SIM_NAME
  *text = nullptr;
  return kCUDA_ERROR_INVALID_VALUE;
}

CU_API cuGetErrorString(CUresult, const char** text) {
  *text = refusal().c_str();
  return 0;
}

// ---- devices ----

namespace {
int check_device(const char* name, CUdevice device) {
  if (const int error = enter_free(name)) return error;
  if (device < 0 || device >= device_count()) return refuse(101, "%s: device %d of %d", name, device, device_count());
  return 0;
}
} // namespace

CU_API cuDeviceGetCount(int* count) {
  if (const int error = enter_free("cuDeviceGetCount")) return error;
  *count = device_count();
  return 0;
}

CU_API cuDeviceGet(CUdevice* device, int ordinal) {
  if (const int error = check_device("cuDeviceGet", ordinal)) return error;
  *device = ordinal;
  return 0;
}

CU_API cuDeviceGetName(char* name, int size, CUdevice device) {
  if (const int error = check_device("cuDeviceGetName", device)) return error;
  std::snprintf(name, static_cast<size_t>(size), "Simulated GPU");
  return 0;
}

CU_API cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  if (const int error = check_device("cuDeviceGetAttribute", device)) return error;
  *value = value_of(attribute);
  return *value < 0 ? refuse(kCUDA_ERROR_INVALID_VALUE, "cuDeviceGetAttribute: %d is not simulated", attribute) : 0;
}

CU_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  if (const int error = check_device("cuDeviceTotalMem", device)) return error;
  *bytes = size_t(setting("MEMORY_MIB", 2048)) << 20;
  return 0;
}

CU_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (const int error = check_device("cuDeviceGetUuid", device)) return error;
  std::memset(uuid->bytes, 0x51 + device, sizeof uuid->bytes);
  return 0;
}

CU_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  if (const int error = check_device("cuDeviceCanAccessPeer", device)) return error;
  if (const int error = check_device("cuDeviceCanAccessPeer", peer)) return error;
  *can = device != peer && setting("PEERS", 1);
  return 0;
}

CU_API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  if (const int error = check_device("cuDeviceGetMemPool", device)) return error;
  if (!setting("POOLS", 1)) return refuse(kCUDA_ERROR_NOT_SUPPORTED, "cuDeviceGetMemPool: the device has none");
  *pool = &context_of(device)->pool;
  return 0;
}

// ---- contexts ----

CU_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const int error = check_device("cuDevicePrimaryCtxRetain", device)) return error;
  *context = context_of(device);
  return 0;
}

CU_API cuCtxGetCurrent(CUcontext* context) {
  if (const int error = enter_free("cuCtxGetCurrent")) return error;
  *context = stack.empty() ? nullptr : stack.back();
  return 0;
}

CU_API cuCtxSetCurrent(CUcontext context) {
  if (const int error = enter_free("cuCtxSetCurrent")) return error;
  if (context && !registry<CUctx_st>::all().has(context)) return refuse(kInvalidContext, "cuCtxSetCurrent: no context");
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return 0;
}

CU_API cuCtxPushCurrent_v2(CUcontext context) {
  if (const int error = enter_free("cuCtxPushCurrent")) return error;
  if (!registry<CUctx_st>::all().has(context)) return refuse(kInvalidContext, "cuCtxPushCurrent: no context");
  stack.push_back(context);
  return 0;
}

CU_API cuCtxPopCurrent_v2(CUcontext* context) {
  if (const int error = enter_free("cuCtxPopCurrent")) return error;
  if (stack.empty()) return refuse(kInvalidContext, "cuCtxPopCurrent: the thread has none");
  *context = stack.back();
  stack.pop_back();
  return 0;
}

CU_API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  CUcontext context = nullptr;
  if (const int error = enter("cuCtxEnablePeerAccess", &context)) return error;
  if (flags || peer == context || !registry<CUctx_st>::all().has(peer))
    return refuse(kCUDA_ERROR_INVALID_VALUE, "cuCtxEnablePeerAccess: not another context, or flags %u", flags);
  const std::lock_guard<std::mutex> lock(context->mutex);
  return context->peers.insert(peer->device).second ? 0 : kCUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
