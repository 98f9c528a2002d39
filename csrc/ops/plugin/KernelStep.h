// A plugin's kernel with the arguments of one call: made now, or kept as a step of a graph.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include "csrc/core/KernelHost.h"
#include "csrc/core/Stream.h"
#include "csrc/ops/plugin/PluginKernels.h"

namespace torch_backend {

/// The one place that calls a plugin's kernels. The context's device is the thread's.
tb_status call_kernel(const PluginKernel& kernel, const tb_kernel_context& context, const tb_arg* args,
                      int32_t num_args);

/// Owns copies of the arguments' descriptions, not the memory they point at. One thread at a time.
class KernelStep final : tb_kernel_host {
 public:
  KernelStep(const PluginKernel& kernel, c10::DeviceIndex device, const tb_arg* args, int32_t num_args);
  KernelStep(const KernelStep&) = delete;
  KernelStep& operator=(const KernelStep&) = delete;

  /// What the kernel says of such a call. It runs, on memory of its own (zeros), and is waited for.
  tb_status try_on_scratch(const Stream& stream);
  /// Throws what the kernel reports.
  void enqueue(const Stream& stream);

 private:
  tb_status run(const Stream& stream);
  void copy_lists(tb_arg& arg);
  tb_tensor* copy_tensor(const tb_tensor* tensor);
  void* keep(const void* values, std::size_t bytes);

  tb_status alloc_output(int32_t index, int32_t ndim, const int64_t* shape, tb_tensor* out_tensor) noexcept override;
  tb_status alloc_workspace(uint64_t size_bytes, void** out_ptr) noexcept override;

  const PluginKernel& kernel_;
  const c10::DeviceIndex device_;
  std::vector<tb_arg> args_;
  std::deque<tb_tensor> tensors_; // addresses stay
  std::vector<std::unique_ptr<std::byte[]>> kept_;
  std::vector<c10::DataPtr> workspaces_;
};

} // namespace torch_backend
