// Initialization, errors, faults, devices.
#include "runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace sim {
namespace {

thread_local std::string recent_error;
thread_local int thread_device = -1;
std::atomic<bool> initialized{false};

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

} // namespace

int refuse(int code, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  recent_error = std::string("simulated AscendCL: ") + text;
  if (const char* path = std::getenv("ASCEND_SIM_LOG")) {
    if (FILE* file = std::fopen(path, "a")) {
      std::fprintf(file, "%d %s\n", code, text);
      std::fclose(file);
    }
  }
  return code;
}

const settings& config() {
  static const settings s = [] {
    settings made{number("ASCEND_SIM_DEVICES", 2), uint64_t(number("ASCEND_SIM_MEMORY_MIB", 2048)) << 20, 0, 0};
    if (const char* delay = std::getenv("ASCEND_SIM_DELAY_US"))
      std::sscanf(delay, "%d-%d", &made.delay_low_us, &made.delay_high_us);
    return made;
  }();
  return s;
}

int injected_fault(const char* name) {
  static const std::string all = [] {
    const char* text = std::getenv("ASCEND_SIM_FAIL");
    return std::string(text ? text : "");
  }();
  if (all.empty()) return 0;
  static std::mutex mutex; // guards calls
  static auto& calls = *new std::map<std::string, int>;
  const std::lock_guard<std::mutex> lock(mutex);
  const int call = ++calls[name];
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(',', at), all.size());
    const std::string entry = all.substr(at, end - at);
    const size_t equals = entry.find('='), colon = entry.find(':');
    const std::string wanted = entry.substr(0, std::min(equals, colon));
    const int of = colon == std::string::npos ? call : std::atoi(entry.c_str() + colon + 1);
    if (wanted == name && of == call) return std::atoi(entry.c_str() + equals + 1);
    at = end + 1;
  }
  return 0;
}

namespace {

device* make_device(int index) {
  auto* d = new device;
  d->index = index;
  d->size = config().memory;
  const int file = memfd_create("ascend-sim", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(d->size)) != 0) std::abort();
  d->base = static_cast<char*>(mmap(nullptr, d->size, PROT_NONE, MAP_SHARED, file, 0));
  d->alias = static_cast<char*>(mmap(nullptr, d->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  if (d->base == MAP_FAILED || d->alias == MAP_FAILED) std::abort();
  close(file);
  return d;
}

} // namespace

device* device_at(int index) {
  static const std::vector<device*>& all = *[] {
    auto* made = new std::vector<device*>;
    for (int i = 0; i < config().devices; ++i) made->push_back(make_device(i));
    return made;
  }();
  return index >= 0 && index < config().devices ? all[static_cast<size_t>(index)] : nullptr;
}

device* current_device() {
  return device_at(thread_device);
}

int enter(const char* name) {
  if (!initialized) return refuse(kUninitialized, "%s before aclInit", name);
  device* d = current_device();
  if (!d) return refuse(kNoContext, "%s on a thread that has not called aclrtSetDevice", name);
  if (d->lost) return refuse(kLost, "%s: device %d does not answer", name, d->index);
  if (const int fault = injected_fault(name)) {
    if (fault == kLost) d->lost = true;
    return refuse(fault, "%s fails because ASCEND_SIM_FAIL says so", name);
  }
  return kOk;
}

} // namespace sim

using namespace sim;

SIM_API int aclInit(const char*) {
  if (const int fault = injected_fault("aclInit"))
    return refuse(fault, "aclInit fails because ASCEND_SIM_FAIL says so");
  return initialized.exchange(true) ? refuse(kRepeatedInitialize, "aclInit twice") : kOk;
}

SIM_API int aclFinalize() {
  initialized = false;
  return kOk;
}

SIM_API const char* aclGetRecentErrMsg() {
  static thread_local std::string told; // valid until the next call, and forgotten
  told = std::move(recent_error);
  recent_error.clear();
  return told.c_str();
}

SIM_API const char* aclrtGetSocName() {
  return "AscendSim";
}

SIM_API int aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  *major = 1, *minor = 13, *patch = 0;
  return kOk;
}

SIM_API int aclrtGetDeviceCount(uint32_t* count) {
  if (const int fault = injected_fault("aclrtGetDeviceCount")) return refuse(fault, "aclrtGetDeviceCount: no driver");
  *count = static_cast<uint32_t>(config().devices);
  return kOk;
}

SIM_API int aclrtSetDevice(int32_t index) {
  if (!initialized) return refuse(kUninitialized, "aclrtSetDevice before aclInit");
  device* d = device_at(index);
  if (!d) return refuse(kNoDevice, "aclrtSetDevice(%d) of %d devices", index, config().devices);
  if (d->lost) return refuse(kLost, "aclrtSetDevice: device %d does not answer", index);
  thread_device = index;
  return kOk;
}

SIM_API int aclrtGetDevice(int32_t* index) {
  if (thread_device < 0) return kNoContext; // how programs ask whether there is one
  *index = thread_device;
  return kOk;
}

SIM_API int aclrtGetDeviceInfo(uint32_t index, int attribute, int64_t* value) {
  if (!device_at(static_cast<int>(index))) return refuse(kNoDevice, "aclrtGetDeviceInfo(%u)", index);
  if (attribute != 101) return refuse(kInvalid, "aclrtGetDeviceInfo: attribute %d", attribute);
  *value = 20;
  return kOk;
}

SIM_API int aclrtDeviceCanAccessPeer(int32_t* can, int32_t index, int32_t peer) {
  if (!device_at(index) || !device_at(peer) || index == peer)
    return refuse(kNoDevice, "aclrtDeviceCanAccessPeer(%d, %d)", index, peer);
  *can = 1;
  return kOk;
}

SIM_API int aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
  if (const int error = enter("aclrtDeviceEnablePeerAccess")) return error;
  device* d = current_device();
  if (!device_at(peer) || peer == d->index || flags != 0)
    return refuse(kInvalid, "aclrtDeviceEnablePeerAccess(%d, %u) on device %d", peer, flags, d->index);
  const std::lock_guard<std::mutex> lock(d->mutex);
  d->peers[peer] = true;
  return kOk;
}

SIM_API int aclrtDeviceGetStreamPriorityRange(int32_t* lowest, int32_t* highest) {
  if (const int error = enter("aclrtDeviceGetStreamPriorityRange")) return error;
  *lowest = 7, *highest = 0;
  return kOk;
}
