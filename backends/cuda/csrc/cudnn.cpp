#include "cudnn.h"

#include <array>
#include <map>
#include <mutex>

#include "device.h"
#include "library.h"

namespace xcuda {

cudnn_functions dnn;

namespace {

const char* (*error_string)(cudnnStatus_t) = nullptr;
void (*last_error_string)(char* message, size_t size) = nullptr; // since 9.0
size_t (*cudart_version)() = nullptr;
size_t (*library_version)() = nullptr;

constexpr size_t kMaxDetail = 512;

// cuDNN 9's numbers are grouped by thousands; those of 8 are all less.
tb_status status_of(cudnnStatus_t error) {
  constexpr int kAllocFailed8 = 2, kBadParam8 = 3, kArchMismatch8 = 6, kNotSupported8 = 9, kHostAllocation9 = 4003,
                kDeviceAllocation9 = 4004, kGroup = 1000, kBadParam9 = 2, kNotSupported9 = 3;
  if (error == kAllocFailed8 || error == kHostAllocation9 || error == kDeviceAllocation9)
    return TB_STATUS_OUT_OF_MEMORY;
  if (error == kNotSupported8 || error == kArchMismatch8 || error / kGroup == kNotSupported9)
    return TB_STATUS_UNSUPPORTED;
  return error == kBadParam8 || error / kGroup == kBadParam9 ? TB_STATUS_INVALID_ARGUMENT : TB_STATUS_INTERNAL;
}

// ---- handles ----

// One thread at a time may use a handle. What a thread leaves is for others.
struct handle_pool {
  std::mutex mutex; // guards left
  std::multimap<int32_t, cudnnHandle_t> left;
};

handle_pool& the_pool() {
  static auto& one = *new handle_pool;
  return one;
}

struct thread_handles {
  std::map<int32_t, cudnnHandle_t> by_device;

  thread_handles() = default;
  thread_handles(const thread_handles&) = delete;
  thread_handles& operator=(const thread_handles&) = delete;
  ~thread_handles() {
    const std::lock_guard<std::mutex> lock(the_pool().mutex);
    the_pool().left.insert(by_device.begin(), by_device.end());
  }
};

bool load() {
#define XCUDA_FUNCTION(name, parameters) {"cudnn" #name, reinterpret_cast<void**>(&dnn.name)},
  const bool found = load_library({"libcudnn.so.9", "libcudnn.so.8"},
                                  {XCUDA_CUDNN_FUNCTIONS(XCUDA_FUNCTION) //
                                   {"cudnnGetErrorString", reinterpret_cast<void**>(&error_string)},
                                   {"cudnnGetCudartVersion", reinterpret_cast<void**>(&cudart_version)},
                                   {"cudnnGetVersion", reinterpret_cast<void**>(&library_version)}},
                                  "convolutions and attention are generated kernels");
#undef XCUDA_FUNCTION
  constexpr size_t kFirstOf9 = 90000;
  if (found && library_version() >= kFirstOf9) // not another one's, beside an older one
    load_library({"libcudnn.so.9"}, {{"cudnnGetLastErrorString", reinterpret_cast<void**>(&last_error_string)}},
                 "errors of cuDNN are told without details");
  constexpr size_t kMajor = 1000;
  if (!found || cudart_version() / kMajor <= static_cast<size_t>(driver_version()) / kMajor) return found;
  host().log(
      TB_LOG_DEBUG,
      "xcuda: convolutions and attention are generated kernels: cuDNN is made for a newer CUDA than the driver's");
  return false;
}

} // namespace

bool load_cudnn() {
  static const bool found = load();
  return found;
}

size_t cudnn_version() {
  return library_version();
}

result check_cudnn(cudnnStatus_t error, const char* what) {
  if (error == kCUDNN_STATUS_SUCCESS) return {};
  if (result lost = check_device(what); !lost.ok()) return lost;
  std::array<char, kMaxDetail> detail{};
  if (last_error_string) last_error_string(detail.data(), detail.size());
  return failure(status_of(error), "%s: %s (%d)%s%s", what, error_string(error), error, detail[0] ? ": " : "",
                 detail.data());
}

result cudnn_handle(int32_t device, CUstream stream, cudnnHandle_t* out_handle) {
  static thread_local thread_handles own;
  cudnnHandle_t& handle = own.by_device[device];
  if (!handle) {
    const std::lock_guard<std::mutex> lock(the_pool().mutex);
    if (auto node = the_pool().left.extract(device)) handle = node.mapped();
  }
  const outside_captures outside;
  result r = handle ? result() : check_cudnn(dnn.Create(&handle), "cudnnCreate");
  if (r.ok()) r = check_cudnn(dnn.SetStream(handle, stream), "cudnnSetStream");
  *out_handle = handle;
  return r;
}

} // namespace xcuda
