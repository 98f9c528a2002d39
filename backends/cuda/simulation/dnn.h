// What the parts of the simulated libcudnn share.
#pragma once

#include <cstring>

#include "../csrc/cudnn.h"
#include "bfloat16.h"
#include "driver.h"

#define DNN_API extern "C" __attribute__((visibility("default"))) int

struct cudnnContext {
  sim::CUcontext context = nullptr;
  sim::CUstream stream = nullptr;
  std::atomic<int> users{0}; // threads that are in a call
};

namespace sim {

constexpr int kNotInitialized = 1001, kBadParam = 2000, kNotSupported = 3000, kExecutionFailed = 5000;
constexpr uint64_t kWorkspaceAlignment = 16;

// ---- elements ----

inline uint64_t bytes_of(int dtype) {
  switch (dtype) {
    case kCUDNN_DATA_DOUBLE:
      return 8;
    case kCUDNN_DATA_FLOAT:
      return 4;
    case kCUDNN_DATA_HALF:
    case kCUDNN_DATA_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

template <typename T>
double load_as(const char* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(static_cast<float>(value));
}

inline double load(const char* at, int dtype) {
  double value = 0;
  switch (dtype) {
    case kCUDNN_DATA_DOUBLE:
      std::memcpy(&value, at, sizeof value);
      return value;
    case kCUDNN_DATA_FLOAT:
      return load_as<float>(at);
    case kCUDNN_DATA_HALF:
      return load_as<_Float16>(at);
    default:
      return load_as<bfloat16>(at);
  }
}

template <typename T>
void store_as(char* at, double computed) {
  const T value = static_cast<T>(static_cast<float>(computed));
  std::memcpy(at, &value, sizeof value);
}

inline void store(char* at, int dtype, double computed) {
  switch (dtype) {
    case kCUDNN_DATA_DOUBLE:
      std::memcpy(at, &computed, sizeof computed);
      return;
    case kCUDNN_DATA_FLOAT:
      return store_as<float>(at, computed);
    case kCUDNN_DATA_HALF:
      return store_as<_Float16>(at, computed);
    default:
      return store_as<bfloat16>(at, computed);
  }
}

// ---- handles ----

// A call with a handle, which one thread at a time may make.
class use {
 public:
  use(const char* name, cudnnHandle_t handle) : handle_(handle) {
    CUcontext context = nullptr;
    if (!registry<cudnnContext>::all().has(handle))
      error_ = refuse(kNotInitialized, "%s: not a handle of cudnnCreate", name);
    else if (handle->users++)
      error_ = refuse(kBadParam, "%s: another thread uses the handle", name);
    else if (const int fault = injected_fault(name))
      error_ = refuse(fault, "%s fails because CUDA_SIM_FAIL says so", name);
    else if (enter(name, &context))
      error_ = kExecutionFailed;
    else if (context != handle->context)
      error_ = refuse(kBadParam, "%s: the handle is of another device than the thread's context", name);
  }
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  ~use() {
    if (registry<cudnnContext>::all().has(handle_)) --handle_->users;
  }
  int error() const {
    return error_;
  }

 private:
  cudnnHandle_t handle_;
  int error_ = 0;
};

} // namespace sim
