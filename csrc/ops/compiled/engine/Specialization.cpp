#include "csrc/ops/compiled/engine/Specialization.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/ops/compiled/engine/SourceText.h"

namespace torch_backend::compiled {

Specialization::Specialization(const Specialization& other)
    : skeleton_(other.skeleton_), hash_(other.hash_), size_(other.size_) {
  std::copy_n(other.facts_.begin(), size_, facts_.begin());
}

bool Specialization::operator==(const Specialization& other) const {
  static_assert(std::has_unique_object_representations_v<Fact>);
  return skeleton_ == other.skeleton_ && size_ == other.size_ &&
         std::memcmp(facts_.data(), other.facts_.data(), size_ * sizeof(Fact)) == 0;
}

void Specialization::refuse(const char* name) const {
  TORCH_INTERNAL_ASSERT(false, skeleton_->function, " has more than ", kMostFacts, " facts: ", name);
}

uint64_t Specialization::find(Kind kind, std::string_view name, int32_t n) const {
  const auto* const end = facts_.data() + size_;
  const auto* const found = std::find_if(
      facts_.data(), end, [&](const Fact& fact) { return fact.kind == kind && fact.n == n && name == fact.name; });
  TORCH_INTERNAL_ASSERT(found != end, skeleton_->function, " derives text of ", name, ", which is no fact");
  return found->value;
}

namespace {

void define_step(SourceText& text, const char* name, int n, StrideKind kind) {
  const auto numbered = c10::str(name, "_", n);
  if (kind == StrideKind::kOther) {
    text.define(numbered, c10::str(name, "(", n, ")"));
  } else {
    text.define(numbered, static_cast<int64_t>(kind));
  }
}

void define_type(SourceText& text, const std::string& name, ValueType type) {
  if (type != ValueType::none) {
    text.define(name, name_of(type));
  }
}

} // namespace

void Specialization::write(SourceText& text) const {
  for (const auto& fact : c10::ArrayRef<Fact>(facts_.data(), size_)) {
    const auto name = fact.n == kNone ? std::string(fact.name) : c10::str(fact.name, "_", fact.n);
    switch (fact.kind) {
      case Kind::kComputeType:
        text.compute_in(static_cast<ValueType>(fact.value));
        break;
      case Kind::kIndex:
        text.index_of(fact.value != 0);
        break;
      case Kind::kParameters:
        text.parameters(static_cast<int>(fact.value));
        break;
      case Kind::kType:
        define_type(text, name, static_cast<ValueType>(fact.value));
        break;
      case Kind::kNumber:
        text.define(name, static_cast<int64_t>(fact.value));
        break;
      case Kind::kFlag:
        if (fact.value != 0) {
          text.define(name, 1);
        }
        break;
      case Kind::kText:
        if (fact.value != 0) {
          text.define(name, reinterpret_cast<const char*>(fact.value));
        }
        break;
      case Kind::kCalled:
        text.call_it(reinterpret_cast<const char*>(fact.value));
        break;
      case Kind::kEntry:
        break;
      case Kind::kStep:
        define_step(text, fact.name, fact.n, static_cast<StrideKind>(fact.value));
        break;
      case Kind::kOperand:
        define_type(text, c10::str("TYPE_", fact.n), operand_type(fact.n));
        define_step(text, fact.name, fact.n, operand_step(fact.n));
    }
  }
  if (skeleton_->derive) {
    skeleton_->derive(*this, text);
  }
}

} // namespace torch_backend::compiled
