// What goes before a skeleton: the definitions that make it one kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/ops/compiled/engine/ValueType.h"

namespace torch_backend::compiled {

/// The text of one specialization, before its skeleton.
class SourceText {
 public:
  explicit SourceText(const char* language) : language_(language) {}

  /// `#define name value`. Line ends in `value` are kept as one line.
  void define(std::string_view name, std::string_view value);
  void define(std::string_view name, int64_t value);
  /// T, TC and what belongs to them; see codegen/kernels/preludes/common.h, and complex.h.
  void compute_in(ValueType type);
  /// Index and UIndex: of 32 bits or of 64.
  void index_of(bool fits_32);
  void line(std::string_view text);
  /// Adds to the name of the function, which traces show: "aten::add.out" as "_add".
  void call_it(std::string_view what);
  /// The kernel's parameters: this many pointers p0, p1, ... and then, if `has_args`, the struct Args, as `args`.
  void parameters(int num_pointers, bool has_args = true);

  /// What follows a function's name in the skeleton: "_add_f32".
  std::string suffix() const {
    return called_ + dtype_;
  }
  /// With preludes before it, and the skeletons that are named after it: "pointwise" or "random pointwise".
  std::string complete(const char* skeletons, bool chunked) const;

 private:
  std::string_view language_;
  std::string called_, dtype_;
  std::string compute_;                  // goes before the common prelude
  std::string before_name_, after_name_; // in the function's declaration
  std::string text_;
};

} // namespace torch_backend::compiled
