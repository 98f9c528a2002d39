// The text of the compiled kernels, from codegen/kernels. See docs/maintain.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace torch_backend::compiled {

/// The prelude of a language ("cpp", "opencl", "cuda", "common"), functions ("floating") or a skeleton ("pointwise"). Static storage; NULL if there
/// is none.
const char* kernel_text(const char* name);

/// One operator whose outputs are computed element by element.
struct PointwiseEntry {
  const char* overload; // "aten::add.out"
  /// What decides which of several entries of one overload serves a call: "approximate=tanh" where the string argument has
  /// that value, "exponent=2" where the first number in T has, "exponent=" or NULL: any call.
  const char* variant;
  /// `T self, T other, T alpha, TB_PRIVATE T* out`: what apply() takes, in the order of the kernel's arguments. Strings are
  /// left out; numbers that count or choose are i64; `int has_min` precedes what may be None; `i64 numel` comes last.
  const char* parameters;
  /// Statements that set *out; by what T is, `boolean` where PyTorch computes in bool. NULL: not for such dtypes, but that
  /// `integral` serves bool too.
  const char* floating;
  const char* integral;
  const char* boolean;
  /// The texts with the functions that the statements call, separated by spaces.
  const char* floating_texts;
  const char* integral_texts;
  uint8_t num_outputs;
  /// Kinds of the arguments but outputs, one letter each: 't' a tensor, or what PyTorch takes for one, 'm' a tensor of bool,
  /// whatever the others are, 'n' a number in T, 'i' a whole number, 's' a string, upper case where it may be None; 'w' comes first and is the output too; '#' at the
  /// end is numel.
  const char* kinds;
  const char* complex = nullptr; // like `floating`
};

struct PointwiseTable {
  const PointwiseEntry* entries;
  std::size_t size;
};
PointwiseTable pointwise_table();

/// The first entry of `overload`; NULL if there is none.
const PointwiseEntry* find_pointwise(const char* overload);

/// One reduction: codegen/kernels/reductions.yaml.
struct ReductionEntry {
  const char* name;      // "sum"
  const char* operators; // "aten::sum.IntList_out", those that are this and nothing else, with spaces between them
  /// What the skeleton needs of it: FIELDS, F0, ..., tb_init, tb_step, tb_merge, tb_finish and FINISHED, which declares
  /// the results r0, ...
  const char* text;
  uint8_t num_inputs;
  uint8_t num_outputs;
  uint8_t num_numbers;
  bool of_output;      // T is what the output's dtype is computed in, else the first input's
  bool counts;         // elements have numbers, so that their order matters
  const char* complex; // what serves complex numbers: "parts", "sizes", another entry's name or, NULL, nothing
};

struct ReductionTable {
  const ReductionEntry* entries;
  std::size_t size;
};
ReductionTable reduction_table();

} // namespace torch_backend::compiled
