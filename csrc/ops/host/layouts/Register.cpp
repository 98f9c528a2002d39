// Sparse, nested and quantized tensors of the device: which kernel serves which operator.

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/dispatch/OperatorFacts.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/Fallback.h"
#include "csrc/ops/host/layouts/Layout.h"
#include "csrc/ops/host/layouts/Register.h"

namespace torch_backend {
namespace {

using c10::DispatchKey;
using torch::jit::Stack;

/// The device that a call is about: that of its first tensor on the device, or its `device` argument.
std::optional<c10::Device> device_of(const c10::OperatorHandle& op, const Stack& stack) {
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().device().is_privateuseone()) {
      return value.toTensor().device();
    }
    if (value.isTensorList() && !value.toTensorList().empty()) {
      return value.toTensorVector().front().device();
    }
    if (value.isDevice() && value.toDevice().is_privateuseone()) {
      return value.toDevice();
    }
  }
  return std::nullopt;
}

/// Note [Kernels that know no device]
/// Most of PyTorch's kernels for sparse and nested tensors are registered for CPU and CUDA alike: they read sizes and
/// flags, take tensors apart or put them together, and leave the numbers to operators on the parts. Such a kernel, called
/// with tensors of the device, calls those operators on the device: nothing crosses to the CPU, so these are no
/// fallbacks. They are found where PyTorch registers them for the CPU.

/// Whether `overload` ("sin.out") has such a kernel for the layout of `key`. False for kernels that are shared but ask for
/// a stub of the device.
bool has_shared_kernel(DispatchKey key, const std::string& overload) {
  const auto fact = key == DispatchKey::SparsePrivateUse1         ? Fact::kSharedSparse
                    : key == DispatchKey::SparseCsrPrivateUse1    ? Fact::kSharedSparseCompressed
                    : key == DispatchKey::NestedTensorPrivateUse1 ? Fact::kSharedNested
                                                                  : Fact::kSharedQuantized;
  return has_fact(fact, overload) || has_fact(fact, overload.substr(0, overload.find('.')));
}

/// PyTorch's kernel for the CPU with the device's tensors: Note [Kernels that know no device].
template <DispatchKey key>
void shared_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of(op, *stack));
  op.redispatchBoxed(c10::DispatchKeySet(on_host(key)), stack);
}

template <DispatchKey key>
void host_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  layout_fallback(op, on_host(key), stack);
}

/// Every operator with a kernel for the layout, and not only a backend fallback: many have a composite kernel too, which
/// would come first and is for strided tensors.
template <DispatchKey key>
void register_layout() {
  auto& dispatcher = c10::Dispatcher::singleton();
  Registrar m(key);
  const std::string prefix = "aten::";
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (name.name.compare(0, prefix.size(), prefix) != 0 || !op || !op->hasKernelForDispatchKey(on_host(key))) {
      continue;
    }
    const std::string overload = c10::toString(name).substr(prefix.size());
    if (has_shared_kernel(key, overload)) {
      m.impl_boxed<&shared_kernel<key>>(overload.c_str());
    } else {
      m.impl_boxed<&host_kernel<key>>(overload.c_str(), Source::kFallback);
    }
  }
  register_fallback(key, torch::CppFunction::makeFromBoxedFunction<&host_kernel<key>>());
}

/// The quantizer's tensors are where the quantized tensor is, wherever the arguments are (as when a tensor is loaded).
void empty_per_channel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto device = device_of(op, *stack);
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()); value != stack->end();
       ++value) {
    if (value->isTensor() && device) {
      *value = value->toTensor().to(*device);
    }
  }
  shared_kernel<DispatchKey::QuantizedPrivateUse1>(op, keys, stack);
}

/// The CPU's kernel keeps which elements won, and only backward needs that: it looks whether its arguments require
/// gradients, which stand-ins do not.
void sparse_mm_reduce(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 3);
  const auto& reduce = arguments[2].toStringRef();
  const bool wants_gradient = at::GradMode::is_enabled() &&
                              (arguments[0].toTensor().requires_grad() || arguments[1].toTensor().requires_grad());
  TORCH_CHECK_NOT_IMPLEMENTED(!wants_gradient || (reduce != "amax" && reduce != "amin"),
                              "Gradients of torch.sparse.mm with reduce='", reduce, "' are not offered on ",
                              device_api().name(), ". Compute it on the CPU, or under torch.no_grad().");
  layout_fallback(op, DispatchKey::SparseCsrCPU, stack);
}

} // namespace

void register_layouts() {
  {
    Registrar m(DispatchKey::QuantizedPrivateUse1);
    m.impl_boxed<&empty_per_channel>("_empty_per_channel_affine_quantized");
  }
  {
    Registrar m(DispatchKey::SparseCsrPrivateUse1);
    m.impl_boxed<&sparse_mm_reduce>("_sparse_mm_reduce_impl", Source::kFallback);
  }
  {
    Registrar m(DispatchKey::PrivateUse1);
    m.impl_boxed<&shared_kernel<DispatchKey::PrivateUse1>>("_nested_view_from_buffer");
  }
  register_layout<DispatchKey::SparsePrivateUse1>();
  register_layout<DispatchKey::SparseCsrPrivateUse1>();
  register_layout<DispatchKey::NestedTensorPrivateUse1>();
  register_layout<DispatchKey::QuantizedPrivateUse1>();
}

} // namespace torch_backend
