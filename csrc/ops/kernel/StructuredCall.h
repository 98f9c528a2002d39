// A kernel of a structured operator: called with what the operator's meta function has worked out.
#pragma once

#include <atomic>
#include <string>
#include <type_traits>

#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/dispatch/CodegenKernels.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/dispatch/StructuredKernel.h"
#include "csrc/ops/kernel/KernelCall.h"
#include "csrc/ops/kernel/KernelTable.h"

namespace torch_backend {
namespace detail {

/// What is the same for all operators, and therefore no template.
class StructuredCall {
 public:
  StructuredCall(const Kernel& kernel, at::impl::MetaBase& op, std::size_t num_outputs);

 protected:
  const at::AutoDispatchBelowADInplaceOrView below_autograd_;
  const Kernel& kernel_;
  at::impl::MetaBase& op_;
  const std::size_t num_outputs_;
  KernelCall call_;
  bool has_work_ = false;
};

/// A kernel takes the inputs as they are given.
class GivenInputsCall : StructuredCall {
 public:
  using StructuredCall::StructuredCall;

  void add(const at::Tensor& tensor);
  void add(const std::optional<at::Tensor>& tensor);
  void add(const at::ITensorListRef& tensors);
  template <class T>
  void add(const T& value) {
    call_.add(value);
    is_begun_ = true;
  }
  bool launch();

 private:
  void note(const at::Tensor& tensor);
  bool is_read(const at::Tensor& output) const;

  bool is_begun_ = false;
  const c10::TensorImpl* first_ = nullptr;             // the first argument, if it is a tensor
  c10::SmallVector<const c10::TensorImpl*, 8> inputs_; // with memory
};

/// A kernel takes the inputs broadcast to the output's shape and converted to the dtype that the operator computes in,
/// numbers as tensors of the device.
class PointwiseCall : StructuredCall {
 public:
  PointwiseCall(const Kernel& kernel, at::TensorIteratorBase& op, std::size_t num_outputs);

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
  bool launch();

 private:
  /// Whether a pointwise kernel can write the output as it is: it writes what it computes in, or, comparing, bools.
  bool takes_output() const;

  const at::Tensor& output_;
  std::optional<c10::ScalarType> dtype_;
  c10::SmallVector<at::Tensor, 4> kept_;
};

} // namespace detail

/// Whether `kernel` goes before ATen's.
inline bool offers(const Kernel* kernel) {
  return kernel != nullptr && !(kernel->has(kLeavesHostMemory) && device_api().host_access());
}

/// Offer a call to the plugin's kernel after `op.meta`: false if it does not take it, and then nothing was written.
/// `args` are the operator's inputs. `kPointwise`: its inputs are broadcast and converted. Compiled once for all operators
/// of the same inputs.
template <bool kPointwise, class... Args>
C10_NOINLINE bool call_plugin(const Kernel& kernel,
                              std::conditional_t<kPointwise, at::TensorIteratorBase, at::impl::MetaBase>& op,
                              std::size_t num_outputs, const Args&... args) {
  std::conditional_t<kPointwise, detail::PointwiseCall, detail::GivenInputsCall> call(kernel, op, num_outputs);
  (call.add(args), ...);
  return call.launch();
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
  C10_NOINLINE bool call(const Kernel& kernel, const char* op, const at::Tensor& out, const Args&... args) const {
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
  C10_NOINLINE void learn(const at::TensorIteratorBase& op, const at::Tensor& out, const Args&... args) {
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
template <class Return, class... Args>
void register_structured_kernel(Registrar& m, const char* overload, Return (*wrapper)(Args...), const Kernel* kernel,
                                StructuredPass pass) {
  if (pass == StructuredPass::kAten) {
    m.impl(overload, wrapper, Source::kAten);
  } else if (kernel != nullptr) {
    const auto* named = find_kernel(std::string("aten::") + overload);
    if (named == nullptr || named == kernel) {
      m.impl(overload, wrapper, kernel->source());
    }
  }
}

} // namespace torch_backend
