#include "csrc/ops/dispatch/Foresee.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/fill_native.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>

#include "csrc/ops/dispatch/ForeseenCache.h"
#include "csrc/ops/dispatch/OperatorFacts.h"

namespace torch_backend {

using torch::jit::Stack;

namespace {

/// A meta tensor with the same sizes, strides, dtype and conj/neg bits. A number stays a number on the CPU: PyTorch's meta
/// kernels in Python know it by that.
at::Tensor as_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return tensor;
  }
  at::Tensor meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  meta._set_conj(tensor.is_conj());
  meta._set_neg(tensor.is_neg());
  return meta;
}

/// A CPU tensor of the same layout: zeros, which are indices and masks that exist, or ones, which are probabilities.
at::Tensor as_trial(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  int64_t length = tensor.numel() == 0 ? 0 : 1;
  for (int64_t dim = 0; length > 0 && dim < tensor.dim(); ++dim) {
    length += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const bool ones = tensor.is_floating_point() || tensor.is_complex();
  at::Tensor trial = at::detail::empty_cpu({length}, tensor.scalar_type());
  at::native::fill_(trial, ones ? 1 : 0);
  trial.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  trial._set_conj(tensor.is_conj());
  trial._set_neg(tensor.is_neg());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    trial.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return trial;
}

using Pairs = std::vector<std::pair<at::Tensor, at::Tensor>>; // argument, what stands for it

/// Whether the call left its arguments' shapes alone and returned tensors each of its own memory.
bool returns_fresh(const OperatorTraits& traits, const Pairs& pairs, const Stack& results) {
  for (const auto& [tensor, its_stand_in] : pairs) {
    if (tensor.defined() && (tensor.sizes() != its_stand_in.sizes() || tensor.strides() != its_stand_in.strides())) {
      return false;
    }
  }
  bool fresh = true;
  std::vector<at::Tensor> others;
  for (std::size_t i = 0; i < traits.returned_arg.size(); ++i) {
    if (traits.returned_arg[i] >= 0) {
      continue;
    }
    for_each_tensor(results[i], [&](const at::Tensor& result) {
      if (!result.defined()) {
        return;
      }
      fresh = fresh && result.layout() == c10::kStrided;
      for (const auto& [tensor, its_stand_in] : pairs) {
        fresh = fresh && !(its_stand_in.defined() && its_stand_in.storage().is_alias_of(result.storage()));
      }
      for (const auto& other : others) {
        fresh = fresh && !other.storage().is_alias_of(result.storage());
      }
      others.push_back(result);
    });
  }
  return fresh;
}

/// The arguments with every tensor replaced by make(tensor); an argument that is written and given again stays one tensor.
template <class Make>
Stack stand_ins_of(const OperatorTraits& traits, c10::ArrayRef<c10::IValue> arguments, Pairs& pairs, const Make& make) {
  Stack stack;
  for (const auto& argument : arguments) {
    stack.push_back(map_tensors(argument, [&](const at::Tensor& tensor) {
      for (std::size_t i = 0; traits.writes_arguments && i < pairs.size(); ++i) {
        if (tensor.defined() && pairs[i].first.is_same(tensor)) {
          return pairs[i].second;
        }
      }
      pairs.emplace_back(tensor, make(tensor));
      return pairs.back().second;
    }));
  }
  return stack;
}

/// The results of the kernel for `key`; nothing if it refuses, or its results are no tensors of their own.
std::optional<Stack> call_stand_ins(const c10::OperatorHandle& op, const OperatorTraits& traits, c10::DispatchKey key,
                                    const Pairs& pairs, Stack stack) {
  try {
    op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return returns_fresh(traits, pairs, stack) ? std::optional<Stack>(std::move(stack)) : std::nullopt;
}

/// Whether what the operator computes can be cast to the tensor that it writes in place. PyTorch's meta kernels in Python
/// do not all look, and the CPU kernel would say so when it is too late; those that make a new tensor show its dtype.
bool fits_in_place(const c10::OperatorHandle& op, const OperatorTraits& traits, const Stack& stand_ins) {
  const bool in_place = traits.name.ends_with('_') && traits.returned_arg == std::vector<int>{0};
  const auto functional = in_place ? c10::Dispatcher::singleton().findSchema(
                                         {traits.name.substr(0, traits.name.size() - 1), op.schema().overload_name()})
                                   : std::nullopt;
  if (!functional || functional->schema().arguments().size() != stand_ins.size()) {
    return true;
  }
  Stack stack = stand_ins;
  try {
    functional->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const std::exception&) {
    return true; // it has no meta kernel, or refuses what the one in place has accepted
  }
  return stack.size() != 1 || !stack[0].isTensor() ||
         c10::canCast(stack[0].toTensor().scalar_type(), stand_ins[0].toTensor().scalar_type());
}

ForeseenCache& cache() {
  static auto* const cache = new ForeseenCache; // never destroyed: threads may outlive what is destroyed at exit
  return *cache;
}

} // namespace

Foresight foresight_of(const OperatorTraits& traits) {
  if (traits.data_dependent || !traits.returns_tensors || has_fact(Fact::kMetaDiffers, traits.name)) {
    return Foresight::kNone;
  }
  return has_fact(Fact::kTried, traits.name) ? Foresight::kTrial : Foresight::kMeta;
}

namespace {

Foreseen as_foreseen(std::optional<Stack>&& results) {
  return results ? std::make_shared<const Stack>(std::move(*results)) : nullptr;
}

Foreseen call_meta_kernel(const c10::OperatorHandle& op, const OperatorTraits& traits,
                          c10::ArrayRef<c10::IValue> arguments) {
  const at::RecordFunctionGuard unrecorded(false);
  Pairs pairs;
  Stack meta = stand_ins_of(traits, arguments, pairs, as_meta);
  const auto& schema = op.schema().arguments();
  for (std::size_t i = 0; traits.random && i < meta.size(); ++i) {
    meta[i] = is_generator(*schema[i].type()) ? c10::IValue() : meta[i];
  }
  auto results = call_stand_ins(op, traits, c10::DispatchKey::Meta, pairs, meta);
  const auto input = op.schema().argumentIndexWithName("input");
  if (results && input && (*results)[0].toTensor().defined() && has_fact(Fact::kSuggestedFormat, traits.name)) {
    const auto format = arguments[static_cast<std::size_t>(*input)].toTensor().suggest_memory_format();
    (*results)[0] = (*results)[0].toTensor().contiguous(format);
  }
  return results && fits_in_place(op, traits, meta) ? as_foreseen(std::move(results)) : nullptr;
}

Foreseen try_cpu_kernel(const c10::OperatorHandle& op, const OperatorTraits& traits,
                        c10::ArrayRef<c10::IValue> arguments) {
  const at::RecordFunctionGuard unrecorded(false);
  Pairs pairs;
  const Stack trial = stand_ins_of(traits, arguments, pairs, as_trial);
  return as_foreseen(call_stand_ins(op, traits, c10::DispatchKey::CPU, pairs, trial));
}

Foreseen once(Foresight how, decltype(call_meta_kernel)& find, const c10::OperatorHandle& op,
              const OperatorTraits& traits, c10::ArrayRef<c10::IValue> arguments) {
  auto key = CallKey::of(op, traits, arguments, how);
  if (!key) {
    return find(op, traits, arguments);
  }
  if (auto known = cache().find(*key)) {
    return known;
  }
  const auto results = find(op, traits, arguments);
  if (!results) {
    return nullptr;
  }
  Stack copies; // of this call alone: those of the kernel may have Python objects
  for (const auto& result : *results) {
    copies.push_back(map_tensors(result, as_meta));
  }
  auto kept = std::make_shared<const Stack>(std::move(copies));
  cache().insert(std::move(*key), kept);
  return kept;
}

} // namespace

Foreseen foresee_by_trial(const c10::OperatorHandle& op, const OperatorTraits& traits,
                          c10::ArrayRef<c10::IValue> arguments) {
  return once(Foresight::kTrial, try_cpu_kernel, op, traits, arguments);
}

Foreseen foresee(const c10::OperatorHandle& op, const OperatorTraits& traits, c10::ArrayRef<c10::IValue> arguments) {
  if (traits.result_rule) {
    return as_foreseen(traits.result_rule(arguments));
  }
  return once(Foresight::kMeta, call_meta_kernel, op, traits, arguments);
}

} // namespace torch_backend
