// Typed device kernels made of ATen's CPU kernels: for hot operators, without the boxed fallback's cost.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/host/Fallback.h"
#include "csrc/ops/host/HostCall.h"

namespace torch_backend {
namespace detail {

/// What an argument of type T is turned into for the CPU kernel. The holder lives as long as the call.
template <class T>
struct StandIn {
  StandIn(HostCall&, T value) : value_(value) {}
  T get() {
    return value_;
  }
  T value_;
};

/// A tensor that HostCall keeps alive, without a reference count of its own.
class BorrowedTensor {
 public:
  BorrowedTensor() = default;
  explicit BorrowedTensor(const at::Tensor& tensor) : tensor_(Traits::createBorrow(tensor)) {}
  BorrowedTensor(BorrowedTensor&& other) noexcept : tensor_(std::move(other.tensor_)) {}
  BorrowedTensor(const BorrowedTensor&) = delete;
  BorrowedTensor& operator=(const BorrowedTensor&) = delete;
  BorrowedTensor& operator=(BorrowedTensor&&) = delete;
  ~BorrowedTensor() {
    Traits::destroyBorrow(tensor_);
  }
  const at::Tensor& get() const {
    return tensor_;
  }

 private:
  using Traits = c10::MaybeOwnedTraits<at::Tensor>;
  at::Tensor tensor_;
};

template <>
struct StandIn<const at::Tensor&> {
  StandIn(HostCall& call, const at::Tensor& tensor) : value_(call.stand_in(tensor)) {}
  const at::Tensor& get() {
    return value_.get();
  }
  BorrowedTensor value_;
};

template <>
struct StandIn<at::Tensor&> {
  StandIn(HostCall& call, at::Tensor& tensor) : value_(call.stand_in(tensor, /*written=*/true)) {}
  at::Tensor& get() {
    return value_;
  }
  at::Tensor value_; // not borrowed: the kernel may assign to it
};

template <>
struct StandIn<const std::optional<at::Tensor>&> {
  StandIn(HostCall& call, const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      value_ = call.stand_in(*tensor, call.has(kWritesOptionals));
    }
  }
  const std::optional<at::Tensor>& get() {
    return value_;
  }
  std::optional<at::Tensor> value_;
};

template <>
struct StandIn<at::TensorList> {
  StandIn(HostCall& call, at::TensorList tensors) {
    for (const auto& tensor : tensors) {
      value_.push_back(call.stand_in(tensor, call.has(kWritesLists)));
    }
  }
  at::TensorList get() {
    return value_;
  }
  c10::SmallVector<at::Tensor, 8> value_;
};

template <>
struct StandIn<const at::ITensorListRef&> {
  StandIn(HostCall& call, const at::ITensorListRef& tensors) {
    for (const auto& tensor : tensors) {
      value_.push_back(call.stand_in(tensor));
    }
  }
  const at::ITensorListRef& get() {
    // Made here and not in the constructor: holders are moved before the call.
    list_ = at::ITensorListRef(at::TensorList(value_));
    return list_;
  }
  c10::SmallVector<at::Tensor, 8> value_;
  at::ITensorListRef list_;
};

template <>
struct StandIn<const c10::List<std::optional<at::Tensor>>&> {
  StandIn(HostCall& call, const c10::List<std::optional<at::Tensor>>& tensors) {
    value_.reserve(tensors.size());
    for (const std::optional<at::Tensor>& tensor : tensors) {
      value_.push_back(tensor.has_value() ? std::optional<at::Tensor>(call.stand_in(*tensor)) : std::nullopt);
    }
  }
  const c10::List<std::optional<at::Tensor>>& get() {
    return value_;
  }
  c10::List<std::optional<at::Tensor>> value_;
};

template <>
struct StandIn<std::optional<at::Generator>> {
  StandIn(HostCall& call, std::optional<at::Generator> generator) : call_(call), generator_(std::move(generator)) {}
  // Not before the call, when all tensors have told their device.
  std::optional<at::Generator> get() {
    return call_.stand_in(generator_);
  }
  HostCall& call_;
  std::optional<at::Generator> generator_;
};

/// The index-th argument of type at::Tensor&: what an in-place or out= operator returns.
template <std::size_t Index, class First, class... Rest>
at::Tensor& written_argument(First&& first, Rest&&... rest) {
  if constexpr (std::is_same_v<First, at::Tensor&>) {
    if constexpr (Index == 0) {
      return first;
    } else {
      return written_argument<Index - 1, Rest...>(std::forward<Rest>(rest)...);
    }
  } else {
    return written_argument<Index, Rest...>(std::forward<Rest>(rest)...);
  }
}

template <class T>
struct Result {
  static T bring(HostCall&, T value) {
    return value;
  }
};

template <>
struct Result<at::Tensor> {
  static at::Tensor bring(HostCall& call, at::Tensor&& value) {
    return call.result(std::move(value));
  }
};

template <>
struct Result<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> bring(HostCall& call, std::vector<at::Tensor>&& values) {
    for (const auto& value : values) {
      call.expect_result(value);
    }
    for (auto& value : values) {
      value = call.result(std::move(value));
    }
    return std::move(values);
  }
};

inline void expect_result(HostCall& call, const at::Tensor& tensor) {
  call.expect_result(tensor);
}
template <class T>
void expect_result(HostCall& /*call*/, const T& /*value*/) {}

template <class... Ts>
struct Result<std::tuple<Ts...>> {
  static std::tuple<Ts...> bring(HostCall& call, std::tuple<Ts...>&& values) {
    return std::apply(
        [&](Ts&... each) {
          (expect_result(call, each), ...);
          return std::tuple<Ts...>{Result<Ts>::bring(call, std::move(each))...};
        },
        values);
  }
};

template <class T>
struct ReferenceTuple : std::false_type {};
template <class... Ts>
struct ReferenceTuple<std::tuple<Ts...>> : std::bool_constant<(std::is_same_v<Ts, at::Tensor&> && ...)> {};

/// Compiled once for each signature: boxing is much code.
template <class Return, class... Args>
C10_NOINLINE Return call_boxed(const c10::OperatorHandle& op, Args... args) {
  return c10::impl::BoxedKernelWrapper<Return(Args...)>::call(c10::BoxedKernel::makeFromFunction<&call_aten_kernel>(),
                                                              op, c10::DispatchKeySet(), std::forward<Args>(args)...);
}

} // namespace detail

/// The device kernel of operator `Op` (a struct of at::_ops): `call` has the operator's own signature.
/// `kFlags`: HostCallFlags.
template <class Op, unsigned kFlags = 0, class Schema = typename Op::schema>
struct AtenKernel;

template <class Op, unsigned kFlags, class Return, class... Args>
struct AtenKernel<Op, kFlags, Return(Args...)> {
  static Return call(Args... args) {
    if (C10_UNLIKELY(!runs_inline())) {
      return call_boxed(std::forward<Args>(args)...);
    }
    HostCall host(Op::name, std::is_void_v<Return> ? kFlags | kWritesLists : kFlags);
    // Braces: stand-ins are made left to right.
    std::tuple<detail::StandIn<Args>...> stand_ins{detail::StandIn<Args>(host, static_cast<Args>(args))...};
    if (C10_UNLIKELY(!host.on_one_device())) {
      return call_boxed(std::forward<Args>(args)...); // which knows the operator's schema
    }
    host.enter();
    const auto run = [](auto&... each) -> Return {
      return Op::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), each.get()...);
    };
    if constexpr (std::is_void_v<Return>) {
      std::apply(run, stand_ins);
      host.leave();
    } else if constexpr (std::is_same_v<Return, at::Tensor&>) {
      std::apply(run, stand_ins);
      host.leave();
      return detail::written_argument<0, Args...>(std::forward<Args>(args)...);
    } else if constexpr (detail::ReferenceTuple<Return>::value) {
      std::apply(run, stand_ins);
      host.leave();
      return [&]<std::size_t... I>(std::index_sequence<I...>) -> Return {
        return Return(detail::written_argument<I, Args...>(std::forward<Args>(args)...)...);
      }(std::make_index_sequence<std::tuple_size_v<Return>>());
    } else {
      Return result = std::apply(run, stand_ins);
      host.leave();
      return detail::Result<Return>::bring(host, std::move(result));
    }
  }

  /// The same, without a kernel of its own: where it must be enqueued or memory copied, or is rarely called, the cost of
  /// boxing does not matter.
  static Return call_boxed(Args... args) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    return detail::call_boxed<Return, Args...>(op, std::forward<Args>(args)...);
  }
};

} // namespace torch_backend
