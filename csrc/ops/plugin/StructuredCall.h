// A plugin's kernel of a structured operator: called with what the operator's meta function has worked out.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/dispatch/GeneratedKernels.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/dispatch/StructuredKernel.h"
#include "csrc/ops/plugin/KernelCall.h"

namespace torch_backend {
namespace detail {

/// Inputs of a pointwise operator: broadcast to the output's shape and converted to the dtype it computes in, numbers as
/// tensors of the device. Keeps what it makes alive.
class PointwiseInputs {
 public:
  PointwiseInputs(KernelCall& call, const PluginKernel& kernel, const at::TensorIteratorBase& iterator,
                  const at::Tensor& output)
      : call_(call), kernel_(kernel), dtype_(common_dtype(iterator)), output_(output) {
    if (dtype_) {
      call_.compute_in(*dtype_);
    }
  }

  void add(const at::Tensor& tensor);
  void add(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      add(*tensor);
    } else {
      call_.add_none();
    }
  }
  template <class T>
  void add(const T& value) {
    call_.add(value);
  }

 private:
  KernelCall& call_;
  const PluginKernel& kernel_;
  std::optional<c10::ScalarType> dtype_;
  const at::Tensor& output_;
  c10::SmallVector<at::Tensor, 4> kept_;
};

/// Whether a pointwise kernel can write `output` as it is: it writes what it computes in, or, comparing, bools.
bool takes_output(const at::TensorIteratorBase& iterator, const at::Tensor& output);

inline bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() && a.storage().is_alias_of(b.storage());
}
template <class T>
bool shares_memory(const at::Tensor&, const T&) {
  return false;
}
inline bool shares_memory(const at::Tensor& a, const std::optional<at::Tensor>& b) {
  return b.has_value() && shares_memory(a, *b);
}
inline bool shares_memory(const at::Tensor& a, const at::ITensorListRef& list) {
  for (const auto& b : list) {
    if (shares_memory(a, b)) {
      return true;
    }
  }
  return false;
}

template <class... Args>
bool is_first(const at::Tensor& a, const at::Tensor& first, const Args&...) {
  return a.is_same(first);
}
template <class... Args>
bool is_first(const at::Tensor&, const Args&...) {
  return false;
}

/// An uninitialized tensor like `tensor`, of dense strides.
at::Tensor fresh_like(const at::Tensor& tensor);

} // namespace detail

/// Whether `kernel` goes before ATen's: what the host can compute where the memory lies is not left to kernels of ours.
inline bool offers(const PluginKernel* kernel) {
  return kernel != nullptr && (kernel->source() == Source::kPlugin || !device_api().host_access());
}

/// Offer a call to the plugin's kernel after `op.meta`: false if it does not take it, and then nothing was written.
/// `args` are the operator's inputs. `kPointwise`: its inputs are broadcast and converted.
template <bool kPointwise, class Kernel, class... Args>
bool call_plugin(const PluginKernel& kernel, Kernel& op, const Args&... args) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto device = op.maybe_get_output(0).device();
  bool has_work = false;
  for (std::size_t i = 0; i < Kernel::kNumOutputs; ++i) {
    has_work = has_work || op.maybe_get_output(static_cast<int64_t>(i)).numel() > 0;
  }
  if (!has_work) {
    return true;
  }
  KernelCall call(kernel, device.index());
  if constexpr (kPointwise) {
    const at::Tensor& output = op.maybe_get_output(0);
    if (!kernel.takes_mixed_dtypes() && !detail::takes_output(op, output)) {
      return false;
    }
    detail::PointwiseInputs inputs(call, kernel, op, output);
    (inputs.add(args), ...);
    call.add_output(output);
    return call.launch() == TB_STATUS_OK;
  } else {
    (call.add(args), ...);
    std::array<at::Tensor, Kernel::kNumOutputs>
        fresh; // in place of outputs that are inputs, which a kernel reads as it writes
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      const at::Tensor& output = op.maybe_get_output(static_cast<int64_t>(i));
      const int num_shared = (static_cast<int>(detail::shares_memory(output, args)) + ... + 0);
      if (num_shared > (kernel.updates_first() && detail::is_first(output, args...) ? 1 : 0)) {
        fresh[i] = detail::fresh_like(output);
      }
      call.add_output(fresh[i].defined() ? fresh[i] : output);
    }
    if (call.launch() != TB_STATUS_OK) {
      return false;
    }
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      if (fresh[i].defined()) {
        op.maybe_get_output(static_cast<int64_t>(i)).copy_(fresh[i]);
      }
    }
    return true;
  }
}

/// Note [Plain calls]
/// The meta function of a pointwise operator takes longer than a small kernel. Of a plain call it changes nothing: all
/// tensors, the output too, have one floating dtype and one shape, are contiguous and on one device, and the output is
/// one of the inputs or shares no memory with them; numbers are real. All that is left to know is whether the operator
/// computes in that dtype, which the first such call tells.
class PlainCalls {
 public:
  /// Call the kernel without the meta function; false if the call is not known to be plain, or not taken.
  template <class... Args>
  bool call(const PluginKernel& kernel, const char* op, const at::Tensor& out, const Args&... args) const {
    if (!knows(out.scalar_type()) || !is_plain(out, args...)) {
      return false;
    }
    detail::StructuredDevice device(op);
    device.use(out.device());
    KernelCall call(kernel, out.device().index());
    call.compute_in(out.scalar_type());
    (call.add(args), ...);
    call.add_output(out);
    return call.launch() == TB_STATUS_OK;
  }

  /// After a call through the meta function.
  template <class... Args>
  void learn(const at::TensorIteratorBase& op, const at::Tensor& out, const Args&... args) {
    if (!knows(out.scalar_type()) && common_dtype(op) == out.scalar_type() && is_plain(out, args...)) {
      known_.fetch_or(bit(out.scalar_type()), std::memory_order_relaxed);
    }
  }

 private:
  static uint64_t bit(c10::ScalarType type) {
    return uint64_t{1} << static_cast<unsigned>(type);
  }
  bool knows(c10::ScalarType type) const {
    return (known_.load(std::memory_order_relaxed) & bit(type)) != 0;
  }
  template <class... Args>
  static bool is_plain(const at::Tensor& out, const Args&... args) {
    return c10::isFloatingType(out.scalar_type()) && (fits(out, args) && ...);
  }
  static bool fits(const at::Tensor& out, const at::Tensor& tensor);
  static bool fits(const at::Tensor& /*out*/, const at::Scalar& number) {
    return number.isFloatingPoint() || number.isIntegral(/*includeBool=*/false);
  }
  /// Of anything else the meta function may have an opinion.
  template <class T>
  static bool fits(const at::Tensor& /*out*/, const T& /*value*/) {
    return false;
  }

  std::atomic<uint64_t> known_{0}; // a bit per dtype
};

/// Register a generated wrapper. `kernel`: the plugin's for the group. One that it names the overload itself with goes
/// before it.
template <class Wrapper>
void register_structured_kernel(Registrar& m, const char* overload, Wrapper wrapper, const PluginKernel* kernel,
                                StructuredPass pass) {
  if (pass == StructuredPass::kAten) {
    m.impl(overload, wrapper, Source::kAten);
  } else if (kernel != nullptr) {
    const auto* named = find_plugin_kernel(std::string("aten::") + overload);
    if (named == nullptr || named == kernel) {
      m.impl(overload, wrapper, kernel->source());
    }
  }
}

} // namespace torch_backend
