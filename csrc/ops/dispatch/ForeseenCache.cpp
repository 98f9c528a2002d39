#include "csrc/ops/dispatch/ForeseenCache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DefaultDtype.h>

namespace torch_backend {
namespace {

/// What a word of a key begins; the values only have to differ.
enum Kind : int64_t { kNone, kUndefined, kTensor, kBool, kInt, kDouble, kComplex, kString, kList, kSame };

bool reads_tensor(const OperatorTraits& traits, c10::ArrayRef<c10::IValue> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!traits.written[i] && (arguments[i].isTensor() || arguments[i].isTensorList())) {
      return true;
    }
  }
  return false;
}

int64_t bits(double number) {
  return std::bit_cast<int64_t>(number);
}

int64_t class_of(double number) {
  return std::fpclassify(number) * 2 + (std::signbit(number) ? 1 : 0);
}

} // namespace

std::optional<CallKey> CallKey::of(const c10::OperatorHandle& op, const OperatorTraits& traits,
                                   c10::ArrayRef<c10::IValue> arguments, Foresight how) {
  if (!std::string_view(traits.name).starts_with("aten::")) {
    return std::nullopt;
  }
  CallKey key;
  key.words_.push_back(reinterpret_cast<int64_t>(&op.schema()));
  key.words_.push_back(static_cast<int64_t>(how));
  key.words_.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  const bool with_tensor = reads_tensor(traits, arguments);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!key.add(arguments[i], with_tensor && traits.takes_numbers[i])) {
      return std::nullopt;
    }
  }
  for (std::size_t i = 0; traits.writes_arguments && i < arguments.size(); ++i) {
    for (std::size_t j = 0; traits.written[i] && j < arguments.size(); ++j) {
      if (i != j && arguments[i].isTensor() && arguments[j].isTensor() &&
          arguments[i].toTensor().is_same(arguments[j].toTensor())) {
        key.words_.append({kSame, static_cast<int64_t>(i), static_cast<int64_t>(j)});
      }
    }
  }
  return key;
}

bool CallKey::add_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    words_.push_back(kUndefined);
    return true;
  }
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (tensor.layout() != c10::kStrided || impl->has_symbolic_sizes_strides()) {
    return false;
  }
  words_.push_back(kTensor);
  words_.push_back(static_cast<int64_t>(tensor.scalar_type()) << 4 | int64_t{impl->is_wrapped_number()} << 3 |
                   int64_t{tensor.is_conj()} << 2 | int64_t{tensor.is_neg()} << 1 | int64_t{tensor._is_zerotensor()});
  words_.push_back(tensor.dim());
  words_.append(tensor.sizes().begin(), tensor.sizes().end());
  words_.append(tensor.strides().begin(), tensor.strides().end());
  return true;
}

bool CallKey::add(const c10::IValue& value, bool by_class) {
  if (value.isNone()) {
    words_.push_back(kNone);
  } else if (value.isTensor()) {
    return add_tensor(value.toTensor());
  } else if (value.isBool()) {
    words_.append({kBool, value.toBool()});
  } else if (value.isInt()) {
    words_.append({kInt, value.toInt()});
  } else if (value.isDouble()) {
    const double number = value.toDouble();
    words_.append({kDouble, by_class ? class_of(number) : bits(number)});
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    words_.append({kComplex, bits(number.real()), bits(number.imag())});
  } else if (value.isString()) {
    const auto& text = value.toStringRef();
    words_.append({kString, static_cast<int64_t>(text.size())});
    words_.append(text.begin(), text.end());
  } else if (value.isList()) {
    const auto elements = value.toListRef();
    words_.append({kList, static_cast<int64_t>(elements.size())});
    return std::all_of(elements.begin(), elements.end(),
                       [&](const c10::IValue& element) { return add(element, by_class); });
  } else {
    return false;
  }
  return true;
}

std::size_t CallKey::Hash::operator()(const CallKey& key) const noexcept {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(key.words_.data()), key.words_.size() * sizeof(int64_t)});
}

Foreseen ForeseenCache::find(const CallKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto entry = entries_.find(key);
  return entry == entries_.end() ? nullptr : entry->second;
}

void ForeseenCache::insert(CallKey key, Foreseen results) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.size() >= kCapacity) {
    entries_.clear();
  }
  entries_.emplace(std::move(key), std::move(results));
}

} // namespace torch_backend
