#include "reduction.h"

#include <type_traits>

#include "number_formats.h"

namespace xcpu::ccl {
namespace {

// Stays in the first-level cache, with a block of every source.
constexpr uint64_t kBlock = 1024;

// Integers wrap around.
template <typename T>
using wrapping = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::enable_if<true, T>>;

struct unfinished {
  template <typename T>
  static T finish(T value, int) {
    return value;
  }
};

struct sum : unfinished {
  template <typename T>
  static T apply(T a, T b) {
    using U = typename wrapping<T>::type;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};

struct average : sum {
  template <typename T>
  static T finish(T value, int num_sources) {
    return static_cast<T>(value / static_cast<T>(num_sources));
  }
};

struct product : unfinished {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_class_v<T>) {
      return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

struct smallest : unfinished {
  template <typename T>
  static T apply(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

struct largest : unfinished {
  template <typename T>
  static T apply(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

// `count` is known to the compiler for all blocks but the last.
template <typename Format, typename Op>
inline void reduce_block(const void* const* sources, int num_sources, void* out, uint64_t first, uint64_t count) {
  using stored = typename Format::stored;
  typename Format::accumulator total[kBlock];
  const stored* source = static_cast<const stored*>(sources[0]) + first;
  for (uint64_t i = 0; i < count; ++i) total[i] = Format::load(source[i]);
  for (int number = 1; number < num_sources; ++number) {
    source = static_cast<const stored*>(sources[number]) + first;
    for (uint64_t i = 0; i < count; ++i) total[i] = Op::apply(total[i], Format::load(source[i]));
  }
  stored* target = static_cast<stored*>(out) + first;
  for (uint64_t i = 0; i < count; ++i) target[i] = Format::store(Op::finish(total[i], num_sources));
}

template <typename Format, typename Op>
void reduce_all(const void* const* sources, int num_sources, void* out, uint64_t count) {
  uint64_t first = 0;
  for (; first + kBlock <= count; first += kBlock) reduce_block<Format, Op>(sources, num_sources, out, first, kBlock);
  if (first < count) reduce_block<Format, Op>(sources, num_sources, out, first, count - first);
}

template <typename Format, typename Op>
reduction make() {
  return {reduce_all<Format, Op>, sizeof(typename Format::stored)};
}

// `Mean` is the format that averages are computed in.
template <typename Format, typename Mean = Format>
reduction of_numbers(int32_t which) {
  switch (which) {
    case TB_REDUCE_SUM:
      return make<Format, sum>();
    case TB_REDUCE_PRODUCT:
      return make<Format, product>();
    case TB_REDUCE_MIN:
      return make<Format, smallest>();
    case TB_REDUCE_MAX:
      return make<Format, largest>();
    case TB_REDUCE_AVERAGE:
      return make<Mean, average>();
  }
  return {};
}

// Complex numbers have no order. Sums and averages are those of their parts.
template <typename Real>
reduction of_complex(int32_t which) {
  if (which == TB_REDUCE_SUM || which == TB_REDUCE_AVERAGE) return of_numbers<Real>(which);
  return which == TB_REDUCE_PRODUCT ? make<complex_number<Real>, product>() : reduction{};
}

// Averages of integers that do not fit into their own type on the way are computed in `Wide`.
template <typename T, typename Wide>
reduction of_integers(int32_t which) {
  return of_numbers<plain<T>, widened<T, Wide>>(which);
}

constexpr int key(uint8_t code, uint8_t bits) {
  return code * 256 + bits;
}

} // namespace

reduction find_reduction(tb_dtype dtype, int32_t which) {
  if (dtype.lanes != 1) return {};
  switch (key(dtype.code, dtype.bits)) {
    case key(TB_DTYPE_INT, 8):
      return of_integers<int8_t, int64_t>(which);
    case key(TB_DTYPE_INT, 16):
      return of_integers<int16_t, int64_t>(which);
    case key(TB_DTYPE_INT, 32):
      return of_integers<int32_t, int64_t>(which);
    case key(TB_DTYPE_INT, 64):
      return of_numbers<plain<int64_t>>(which);
    case key(TB_DTYPE_UINT, 8):
      return of_integers<uint8_t, uint64_t>(which);
    case key(TB_DTYPE_UINT, 16):
      return of_integers<uint16_t, uint64_t>(which);
    case key(TB_DTYPE_UINT, 32):
      return of_integers<uint32_t, uint64_t>(which);
    case key(TB_DTYPE_UINT, 64):
      return of_numbers<plain<uint64_t>>(which);
    case key(TB_DTYPE_FLOAT, 16):
      return of_numbers<half>(which);
    case key(TB_DTYPE_FLOAT, 32):
      return of_numbers<plain<float>>(which);
    case key(TB_DTYPE_FLOAT, 64):
      return of_numbers<plain<double>>(which);
    case key(TB_DTYPE_COMPLEX, 32):
      return of_complex<half>(which);
    case key(TB_DTYPE_COMPLEX, 64):
      return of_complex<plain<float>>(which);
    case key(TB_DTYPE_COMPLEX, 128):
      return of_complex<plain<double>>(which);
    case key(TB_DTYPE_BFLOAT, 16):
      return of_numbers<bfloat16>(which);
    case key(TB_DTYPE_BOOL, 8): // 0 or 1: "or" is the largest, "and" the smallest
      if (which == TB_REDUCE_SUM || which == TB_REDUCE_MAX) return make<boolean, largest>();
      return which == TB_REDUCE_PRODUCT || which == TB_REDUCE_MIN ? make<boolean, smallest>() : reduction{};
    case key(TB_DTYPE_FLOAT8_E4M3FN, 8):
      return of_numbers<float8_e4m3fn>(which);
    case key(TB_DTYPE_FLOAT8_E4M3FNUZ, 8):
      return of_numbers<float8_e4m3fnuz>(which);
    case key(TB_DTYPE_FLOAT8_E5M2, 8):
      return of_numbers<float8_e5m2>(which);
    case key(TB_DTYPE_FLOAT8_E5M2FNUZ, 8):
      return of_numbers<float8_e5m2fnuz>(which);
  }
  return {}; // powers of two (e8m0fnu) have no sum
}

} // namespace xcpu::ccl
