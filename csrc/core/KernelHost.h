// What a kernel of the plugin may ask the core for while it runs.
#pragma once

#include "torch_backend/device.h"

/// One per kernel call. Both fail with a status and a text, as the plugin would, and never throw.
struct tb_kernel_host {
  virtual tb_status alloc_output(int32_t index, int32_t ndim, const int64_t* shape, tb_tensor* out_tensor) noexcept = 0;
  virtual tb_status alloc_workspace(uint64_t size_bytes, void** out_ptr) noexcept = 0;

 protected:
  ~tb_kernel_host() = default;
};

namespace torch_backend {

constexpr int32_t kExtDevice = 12; // DLPack's kDLExtDev: the type of tb_tensor::device

/// While alive, `context` belongs to the kernel that runs on the calling thread. Nests.
class RunningKernel {
 public:
  explicit RunningKernel(const tb_kernel_context& context) : before_(running_) {
    running_ = &context;
  }
  ~RunningKernel() {
    running_ = before_;
  }
  RunningKernel(const RunningKernel&) = delete;
  RunningKernel& operator=(const RunningKernel&) = delete;

  /// Who serves `context`; NULL unless it is that of the kernel that runs on the calling thread.
  static tb_kernel_host* host_of(const tb_kernel_context* context) {
    return context && context == running_ ? context->host : nullptr;
  }

 private:
  static constinit thread_local const tb_kernel_context* running_;

  const tb_kernel_context* before_;
};

} // namespace torch_backend
