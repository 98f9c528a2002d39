// What the parts of the simulated libcudnn share.
#pragma once

#include "../csrc/cudnn.h"
#include "operation.h"

#define DNN_API extern "C" __attribute__((visibility("default"))) int

struct cudnnContext {
  sim::CUcontext context = nullptr;
  sim::CUstream stream = nullptr;
  std::atomic<int> users{0}; // threads that are in a call
};

namespace sim {

constexpr int kNotInitialized = 1001, kBadParam = 2000, kNotSupported = 3000, kExecutionFailed = 5000;
constexpr uint64_t kWorkspaceAlignment = 16;

at::ScalarType scalar_type_of(int dtype);

// What sums in any order are multiplied with: they have another last bit every second time.
double any_order(at::ScalarType dtype);

// A call with a handle, which one thread at a time may make.
class use {
 public:
  use(const char* name, cudnnHandle_t handle);
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  ~use() {
    if (registry<cudnnContext>::all().has(handle_)) --handle_->users;
  }
  int error() const {
    return error_;
  }
  // On the handle's stream.
  int enqueue(operation o) const;

 private:
  const char* name_;
  cudnnHandle_t handle_;
  int error_ = 0;
};

} // namespace sim
