// What operators returned for arguments of the same shapes.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/dispatch/Foresee.h"
#include "csrc/ops/dispatch/OperatorTraits.h"

namespace torch_backend {

/// Note [Foreseen once]
/// PyTorch's meta kernels are written in Python for the most part: 100 us a call, and Python's lock. What they say depends
/// on the operator, the layouts and dtypes of tensors, which of them are one tensor, and the values of numbers, so it is
/// kept. Two things bound the
/// number of entries: they are dropped once there are `kCapacity` of them, and where an operator takes a tensor,
/// floating-point Scalars (a learning rate) count by their class alone, which is all that a result's dtype, or a refusal,
/// depends on.
///
/// Only PyTorch's own operators: others can be taken away and defined anew.

/// An operator and its arguments, as far as results' shapes depend on them.
class CallKey {
 public:
  /// Nothing if the call has arguments whose influence is not known: generators, symbolic sizes.
  static std::optional<CallKey> of(const c10::OperatorHandle& op, const OperatorTraits& traits,
                                   c10::ArrayRef<c10::IValue> arguments, Foresight how);

  bool operator==(const CallKey& other) const {
    return words_ == other.words_;
  }
  struct Hash {
    std::size_t operator()(const CallKey& key) const noexcept;
  };

 private:
  /// False: the value's influence is not known. `by_class`: floating-point numbers count by their class.
  bool add(const c10::IValue& value, bool by_class);
  bool add_tensor(const at::Tensor& tensor);

  c10::SmallVector<int64_t, 64> words_;
};

/// Any thread.
class ForeseenCache {
 public:
  /// Meta tensors; null if there is no entry.
  Foreseen find(const CallKey& key);
  /// `results` are meta tensors without Python objects, which would outlive the interpreter here.
  void insert(CallKey key, Foreseen results);

 private:
  static constexpr std::size_t kCapacity = 1 << 14;

  std::mutex mutex_; // guards entries_
  std::unordered_map<CallKey, Foreseen, CallKey::Hash> entries_;
};

} // namespace torch_backend
