#include "csrc/core/KernelHost.h"

namespace torch_backend {

constinit thread_local const tb_kernel_context* RunningKernel::running_ = nullptr;

} // namespace torch_backend
