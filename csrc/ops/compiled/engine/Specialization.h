// A kernel for one kind of call: a list of facts, of which both its key and its text are made.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <c10/macros/Macros.h>

#include "csrc/ops/compiled/engine/ValueType.h"

namespace torch_backend::compiled {

class SourceText;
class Specialization;

/// How far apart neighbours are, as far as a text depends on it.
enum class StrideKind : uint8_t { kZero, kOne, kOther };
inline StrideKind kind_of(int64_t stride) {
  return stride == 0 ? StrideKind::kZero : stride == 1 ? StrideKind::kOne : StrideKind::kOther;
}

/// What all specializations of a kernel have in common. Static storage.
struct Skeleton {
  const char* texts; // of codegen/kernels, in order, with spaces between them
  const char* function;
  /// Lines that follow from the facts. It is told nothing else, so that no text has what its key lacks.
  void (*derive)(const Specialization& facts, SourceText& text) = nullptr;
};

/// Each fact is a definition in the text, and a part of the key; names are of static storage. Equal lists are equal texts.
/// Made for each launch: nothing is written or allocated here.
class Specialization {
 public:
  explicit Specialization(const Skeleton& skeleton)
      : skeleton_(&skeleton), hash_(reinterpret_cast<uintptr_t>(&skeleton)) {}
  Specialization(const Specialization& other);
  Specialization& operator=(const Specialization&) = delete;

  /// What T is: SourceText::compute_in.
  Specialization& compute_in(ValueType type) {
    return add(Kind::kComputeType, "T", static_cast<uint64_t>(type));
  }
  /// What Index is, of 32 bits or of 64.
  Specialization& index_of(bool fits_32) {
    return add(Kind::kIndex, "Index", fits_32);
  }
  /// The kernel's: SourceText::parameters.
  Specialization& parameters(int num_pointers) {
    return add(Kind::kParameters, "parameters", static_cast<uint64_t>(num_pointers));
  }
  /// `name` is the type's name, and not defined where there is none.
  Specialization& type(const char* name, ValueType type) {
    return add(Kind::kType, name, static_cast<uint64_t>(type));
  }
  Specialization& number(const char* name, int64_t value) {
    return add(Kind::kNumber, name, static_cast<uint64_t>(value));
  }
  /// `name` is defined, as 1, or it is not.
  Specialization& flag(const char* name, bool value) {
    return add(Kind::kFlag, name, value);
  }
  /// `value` is of static storage; NULL: `name` is not defined.
  Specialization& text(const char* name, const char* value) {
    return add(Kind::kText, name, reinterpret_cast<uintptr_t>(value));
  }
  /// What the function's name says of the kernel besides the skeleton's: SourceText::call_it. Of static storage.
  Specialization& called(const char* what) {
    return add(Kind::kCalled, "called", reinterpret_cast<uintptr_t>(what));
  }
  /// What `derive` takes texts from, of static storage.
  Specialization& entry(const void* entry) {
    return add(Kind::kEntry, "entry", reinterpret_cast<uintptr_t>(entry));
  }
  /// Of operand or argument n: `name`_n.
  Specialization& type(const char* name, int n, ValueType type) {
    return add(Kind::kType, name, static_cast<uint64_t>(type), n);
  }
  Specialization& number(const char* name, int n, int64_t value) {
    return add(Kind::kNumber, name, static_cast<uint64_t>(value), n);
  }
  Specialization& text(const char* name, int n, const char* value) {
    return add(Kind::kText, name, reinterpret_cast<uintptr_t>(value), n);
  }
  /// `name`_n is 1 or 0 where the stride is that, else what the skeleton's macro `name`(n) says.
  Specialization& step(const char* name, int n, int64_t stride) {
    return add(Kind::kStep, name, static_cast<uint64_t>(kind_of(stride)), n);
  }
  /// Of operand n, in one fact: TYPE_n, as by type(), and STEP_n, as by step().
  Specialization& operand(int n, ValueType type, int64_t stride) {
    return add(Kind::kOperand, "STEP", static_cast<uint64_t>(type) << 8 | static_cast<uint64_t>(kind_of(stride)), n);
  }

  // For `derive`, and slow. A fact that is not in the list is an error.
  ValueType type_of(std::string_view name, int n = kNone) const {
    return static_cast<ValueType>(find(Kind::kType, name, n));
  }
  ValueType computes_in() const {
    return static_cast<ValueType>(find(Kind::kComputeType, "T", kNone));
  }
  bool fits_32() const {
    return find(Kind::kIndex, "Index", kNone) != 0;
  }
  int64_t number_of(std::string_view name, int n = kNone) const {
    return static_cast<int64_t>(find(Kind::kNumber, name, n));
  }
  const char* text_of(std::string_view name, int n = kNone) const {
    return reinterpret_cast<const char*>(find(Kind::kText, name, n));
  }
  bool is(std::string_view name) const {
    return find(Kind::kFlag, name, kNone) != 0;
  }
  ValueType operand_type(int n) const {
    return static_cast<ValueType>(find(Kind::kOperand, "STEP", n) >> 8);
  }
  StrideKind operand_step(int n) const {
    return static_cast<StrideKind>(find(Kind::kOperand, "STEP", n) & 0xff);
  }
  template <class Entry>
  const Entry& entry() const {
    return *reinterpret_cast<const Entry*>(find(Kind::kEntry, "entry", kNone));
  }

  const Skeleton& skeleton() const {
    return *skeleton_;
  }
  void write(SourceText& text) const;

  /// Its high bits depend on all facts.
  std::size_t hash() const {
    return hash_ * 0x9e3779b97f4a7c15U;
  }
  bool operator==(const Specialization& other) const;

 private:
  static constexpr std::size_t kMostFacts = 64;
  static constexpr int32_t kNone = -1;
  enum class Kind : int32_t {
    kComputeType,
    kIndex,
    kParameters,
    kType,
    kNumber,
    kFlag,
    kText,
    kCalled,
    kEntry,
    kStep,
    kOperand
  };
  struct Fact {
    const char* name;
    uint64_t value;
    int32_t n;
    Kind kind;
  };

  // For each fact of each launch: a call would cost more than what it does.
  C10_ALWAYS_INLINE Specialization& add(Kind kind, const char* name, uint64_t value, int32_t n = kNone) {
    if (C10_UNLIKELY(size_ == kMostFacts)) {
      refuse(name);
    }
    facts_[size_++] = {name, value, n, kind};
    hash_ = std::rotl(hash_, 7) ^ value;
    return *this;
  }
  [[noreturn]] void refuse(const char* name) const;
  uint64_t find(Kind kind, std::string_view name, int32_t n) const;

  const Skeleton* skeleton_;
  uint64_t hash_;
  std::size_t size_ = 0;
  std::array<Fact, kMostFacts> facts_;
};

} // namespace torch_backend::compiled
