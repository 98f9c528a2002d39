#include "reduction.h"

#include <algorithm>
#include <type_traits>

#include "number_formats.h"

namespace xcpu::ccl {
namespace {

// Stays in the first-level cache, with a block of every source.
constexpr uint64_t kBlock = 1024;

// Integers wrap around.
template <typename T>
using wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::enable_if<true, T>>::type;

template <int32_t Which, typename T>
T combined(T a, T b) {
  using U = wrapping<T>;
  if constexpr (Which == TB_REDUCE_MIN) return a < b || a != a ? a : b;
  if constexpr (Which == TB_REDUCE_MAX) return a > b || a != a ? a : b;
  if constexpr (Which == TB_REDUCE_PRODUCT) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
}

template <typename Format, int32_t Which>
void reduce_all(const void* const* sources, int num_sources, void* out, uint64_t count) {
  using stored = typename Format::stored;
  using number = typename Format::accumulator;
  number total[kBlock];
  for (uint64_t first = 0; first < count; first += kBlock) {
    const uint64_t size = std::min(kBlock, count - first);
    const stored* source = static_cast<const stored*>(sources[0]) + first;
    for (uint64_t i = 0; i < size; ++i) total[i] = Format::load(source[i]);
    for (int n = 1; n < num_sources; ++n) {
      source = static_cast<const stored*>(sources[n]) + first;
      for (uint64_t i = 0; i < size; ++i) total[i] = combined<Which>(total[i], Format::load(source[i]));
    }
    stored* target = static_cast<stored*>(out) + first;
    const auto parts = static_cast<number>(Which == TB_REDUCE_AVERAGE ? num_sources : 1);
    for (uint64_t i = 0; i < size; ++i) target[i] = Format::store(static_cast<number>(total[i] / parts));
  }
}

template <typename Format>
reduction of_numbers(int32_t which) {
  constexpr reduce_function all[] = {reduce_all<Format, TB_REDUCE_SUM>, reduce_all<Format, TB_REDUCE_PRODUCT>,
                                     reduce_all<Format, TB_REDUCE_MIN>, reduce_all<Format, TB_REDUCE_MAX>,
                                     reduce_all<Format, TB_REDUCE_AVERAGE>};
  return which >= TB_REDUCE_SUM && which <= TB_REDUCE_AVERAGE ? reduction{all[which], sizeof(typename Format::stored)}
                                                              : reduction{};
}

// Sums and averages are those of the parts.
template <typename Real>
reduction of_complex(int32_t which) {
  return which == TB_REDUCE_SUM || which == TB_REDUCE_AVERAGE ? of_numbers<Real>(which) : reduction{};
}

// 0 or 1: "or" is the largest, "and" the smallest.
reduction of_bools(int32_t which) {
  if (which == TB_REDUCE_AVERAGE) return {};
  return of_numbers<boolean>(which == TB_REDUCE_SUM       ? TB_REDUCE_MAX
                             : which == TB_REDUCE_PRODUCT ? TB_REDUCE_MIN
                                                          : which);
}

constexpr struct {
  uint8_t code, bits;
  reduction (*find)(int32_t which);
} kNumbers[] = {
    {TB_DTYPE_INT, 8, of_numbers<plain<int8_t, int64_t>>},
    {TB_DTYPE_INT, 16, of_numbers<plain<int16_t, int64_t>>},
    {TB_DTYPE_INT, 32, of_numbers<plain<int32_t, int64_t>>},
    {TB_DTYPE_INT, 64, of_numbers<plain<int64_t>>},
    {TB_DTYPE_UINT, 8, of_numbers<plain<uint8_t, uint64_t>>},
    {TB_DTYPE_UINT, 16, of_numbers<plain<uint16_t, uint64_t>>},
    {TB_DTYPE_UINT, 32, of_numbers<plain<uint32_t, uint64_t>>},
    {TB_DTYPE_UINT, 64, of_numbers<plain<uint64_t>>},
    {TB_DTYPE_FLOAT, 16, of_numbers<half>},
    {TB_DTYPE_FLOAT, 32, of_numbers<plain<float>>},
    {TB_DTYPE_FLOAT, 64, of_numbers<plain<double>>},
    {TB_DTYPE_BFLOAT, 16, of_numbers<bfloat16>},
    {TB_DTYPE_COMPLEX, 32, of_complex<half>},
    {TB_DTYPE_COMPLEX, 64, of_complex<plain<float>>},
    {TB_DTYPE_COMPLEX, 128, of_complex<plain<double>>},
    {TB_DTYPE_BOOL, 8, of_bools},
};

} // namespace

reduction find_reduction(tb_dtype dtype, int32_t which) {
  for (const auto& numbers : kNumbers)
    if (dtype.lanes == 1 && numbers.code == dtype.code && numbers.bits == dtype.bits) return numbers.find(which);
  return {};
}

} // namespace xcpu::ccl
