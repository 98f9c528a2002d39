#include "csrc/kernels/KernelStep.h"

#include <algorithm>
#include <cstring>

#include "csrc/core/CallSpan.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Status.h"
#include "csrc/core/allocator/DeviceAllocator.h"
#include "csrc/core/graph/Capture.h"

namespace torch_backend {

tb_status call_kernel(const PluginKernel& kernel, const tb_kernel_context& context, const tb_arg* args,
                      int32_t num_args) {
  const RunningKernel running(context);
  CallSpan span("kernel_launch", context.device);
  span.kernel(context.stream, kernel.op());
  const auto status =
      device_api().call(context.device, kernel.op().c_str(), kernel.function(), &context, args, num_args);
  if (status == TB_STATUS_OK) {
    span.enqueued();
  }
  return status;
}

KernelStep::KernelStep(const PluginKernel& kernel, c10::DeviceIndex device, const tb_arg* args, int32_t num_args)
    : kernel_(kernel), device_(device), args_(args, args + num_args) {
  for (auto& arg : args_) {
    copy_lists(arg);
  }
}

void* KernelStep::keep(const void* values, std::size_t bytes) {
  kept_.push_back(std::make_unique<std::byte[]>(std::max<std::size_t>(bytes, 1)));
  if (bytes > 0) {
    std::memcpy(kept_.back().get(), values, bytes);
  }
  return kept_.back().get();
}

tb_tensor* KernelStep::copy_tensor(const tb_tensor* tensor) {
  if (!tensor) {
    return nullptr;
  }
  tensors_.push_back(*tensor);
  auto& copy = tensors_.back();
  const auto bytes = static_cast<std::size_t>(copy.ndim) * sizeof(int64_t);
  copy.shape = static_cast<int64_t*>(keep(copy.shape, bytes));
  copy.strides = static_cast<int64_t*>(keep(copy.strides, bytes));
  return &copy;
}

void KernelStep::copy_lists(tb_arg& arg) {
  switch (arg.tag) {
    case TB_ARG_TENSOR:
      arg.v.p = copy_tensor(static_cast<const tb_tensor*>(arg.v.p));
      break;
    case TB_ARG_TENSOR_LIST: {
      std::vector<tb_tensor*> list(arg.length);
      for (uint32_t i = 0; i < arg.length; ++i) {
        list[i] = copy_tensor(static_cast<tb_tensor* const*>(arg.v.p)[i]);
      }
      arg.v.p = keep(list.data(), list.size() * sizeof(tb_tensor*));
      break;
    }
    case TB_ARG_STRING:
      arg.v.p = keep(arg.v.p, arg.length + std::size_t{1});
      break;
    case TB_ARG_COMPLEX:
      arg.v.p = keep(arg.v.p, 2 * sizeof(double));
      break;
    case TB_ARG_INT_LIST:
    case TB_ARG_FLOAT_LIST:
      arg.v.p = keep(arg.v.p, arg.length * std::size_t{8});
      break;
    default:
      break; // the value itself
  }
}

tb_status KernelStep::run(const Stream& stream) {
  const tb_kernel_context context{sizeof(tb_kernel_context), device_, 0, stream.handle(), this};
  const auto status = call_kernel(kernel_, context, args_.data(), static_cast<int32_t>(args_.size()));
  workspaces_.clear();
  return status;
}

void KernelStep::enqueue(const Stream& stream) {
  device_api().check_usable(device_, kernel_.op().c_str());
  auto status = run(stream);
  if (status == TB_STATUS_OUT_OF_MEMORY && device_allocator().can_empty_cache(device_)) {
    device_allocator().empty_cache(device_);
    status = run(stream);
  }
  if (status != TB_STATUS_OK) {
    throw_status(status, device_api().name(), kernel_.op().c_str(), device_);
  }
}

tb_status KernelStep::try_on_scratch(const Stream& stream) {
  const graph::Suspend suspend;
  std::map<void*, uint64_t> extents; // of what each tensor's memory must hold
  for (const auto& tensor : tensors_) {
    uint64_t last = 1;
    for (int32_t dim = 0; dim < tensor.ndim; ++dim) {
      last += static_cast<uint64_t>((tensor.shape[dim] - 1) * tensor.strides[dim]);
    }
    auto& extent = extents[tensor.data];
    extent = std::max(extent, tensor.byte_offset + last * ((tensor.dtype.bits * tensor.dtype.lanes + 7u) / 8u));
  }
  std::map<void*, c10::DataPtr> scratch;
  for (const auto& [data, bytes] : extents) {
    auto memory = device_allocator().allocate(bytes);
    const uint8_t zero = 0;
    device_api().memory_fill(device_, memory.get(), &zero, 1, bytes, stream.handle());
    scratch.emplace(data, std::move(memory));
  }
  std::vector<void*> originals;
  for (auto& tensor : tensors_) {
    originals.push_back(tensor.data);
    tensor.data = scratch.at(tensor.data).get();
  }
  const auto status = run(stream);
  for (std::size_t i = 0; i < originals.size(); ++i) {
    tensors_[i].data = originals[i];
  }
  stream.synchronize(); // before the scratch memory is somebody else's
  return status;
}

tb_status KernelStep::alloc_output(int32_t /*index*/, int32_t /*ndim*/, const int64_t* /*shape*/,
                                   tb_tensor* /*out_tensor*/) noexcept {
  set_error_text("alloc_output was called in a graph, whose memory is fixed");
  return TB_STATUS_INVALID_ARGUMENT;
}

tb_status KernelStep::alloc_workspace(uint64_t size_bytes, void** out_ptr) noexcept {
  try {
    workspaces_.push_back(device_allocator().allocate(size_bytes));
    *out_ptr = workspaces_.back().get();
    return TB_STATUS_OK;
  } catch (const std::exception& error) {
    set_error_text(error.what());
    return TB_STATUS_OUT_OF_MEMORY;
  }
}

} // namespace torch_backend
