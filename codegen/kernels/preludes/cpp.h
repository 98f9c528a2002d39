// The dialect of the kernels in C++: one call is one block of one item, and a launch divides its range among blocks.
#include <stdint.h>
#include <string.h>

typedef int8_t i8;
typedef uint8_t u8;
typedef int16_t i16;
typedef uint16_t u16;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef float f32;
typedef double f64;

typedef u64 w128 __attribute__((vector_size(16), may_alias));

#define TB_CHUNKED 1
#define TB_HAS_f64 1
#define TB_DEVICE static inline
#define TB_GLOBAL
#define TB_PRIVATE
#define TB_CONSTANT static const
#define TB_CONSTANT_TABLE(type, name, count) static const type name[count] // within a function
#define TB_LOCAL
#define TB_LOCAL_ARRAY(type, name, count) type name[count]
#define TB_BARRIER()
#ifdef __clang__
#define TB_UNROLL _Pragma("unroll")
#else
#define TB_UNROLL _Pragma("GCC unroll 16")
#endif
#define TB_GLOBAL_BARRIER() // for what the items of the block have stored in global memory too
// Whoever sees in global memory what this item stores next sees what it has stored, once it has looked twice.
#define TB_STORE_FENCE() __atomic_thread_fence(__ATOMIC_RELEASE)
// Before a loop whose iterations do not depend on each other, though pointers may be the same.
#ifdef __clang__
#define TB_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TB_INDEPENDENT _Pragma("GCC ivdep")
#endif
#define TB_BLOCK (tb_block[0])
#define TB_BLOCKS (tb_grid[0])
#define TB_LOCAL_ITEM 0
#define TB_BLOCK_ITEMS 1

// Vectors of as many bytes as the processor has registers for; a function may fuse its products with its sums.
#ifdef __AVX512F__
#define TB_VECTOR_BYTES 64
#else
#define TB_VECTOR_BYTES 32
#endif
typedef f32 f32x8 __attribute__((vector_size(32), may_alias));
typedef f32 f32x16 __attribute__((vector_size(64), may_alias));
typedef f64 f64x4 __attribute__((vector_size(32), may_alias));
typedef f64 f64x8 __attribute__((vector_size(64), may_alias));
typedef i32 i32x8 __attribute__((vector_size(32), may_alias));
typedef i32 i32x16 __attribute__((vector_size(64), may_alias));
typedef i64 i64x4 __attribute__((vector_size(32), may_alias));
typedef i64 i64x8 __attribute__((vector_size(64), may_alias));
template <class Vector> static inline Vector tb_vector_at(const void* p) { Vector x; memcpy(&x, p, sizeof x); return x; }
#define TB_VECTOR_AT(V, p) tb_vector_at<V>(p)
#define TB_ZEROS(V) (V{})
#define TB_READ_AHEAD(p) __builtin_prefetch(p)
// The sums of neighbours, of x, then of y.
#define TB_PAIR_SUMS(V, x, y) tb_pair_sums(x, y)
template <class Vector> static inline Vector tb_pair_sums(Vector x, Vector y) {
  constexpr int n = sizeof x / sizeof x[0];
#if __has_builtin(__builtin_shufflevector)
  if constexpr (n == 16)
    return __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
           __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  else if constexpr (n == 8)
    return __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14) +
           __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15);
  else
    return __builtin_shufflevector(x, y, 0, 2, 4, 6) + __builtin_shufflevector(x, y, 1, 3, 5, 7);
#else
  Vector sums;
  for (int i = 0; i < n / 2; ++i) {
    sums[i] = x[2 * i] + x[2 * i + 1];
    sums[n / 2 + i] = y[2 * i] + y[2 * i + 1];
  }
  return sums;
#endif
}
#ifdef __clang__
#define TB_CONTRACTED
#else
#define TB_CONTRACTED __attribute__((noinline, optimize("fp-contract=fast")))
#endif

static inline u32 tb_bits_f32(float x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline float tb_f32_of_bits(u32 x) { float y; memcpy(&y, &x, 4); return y; }

// In operations that every processor has vectors of: compilers convert _Float16 one by one.
static inline float tb_load_half(u16 x) {
  const float scaled = tb_f32_of_bits((u32)(x & 0x7fff) << 13) * 0x1p112f;
  const u32 bits = tb_bits_f32(scaled) | ((x & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u);
  return tb_f32_of_bits(bits | (u32)(x & 0x8000) << 16);
}
static inline u16 tb_store_half(float x) {
  const u32 bits = tb_bits_f32(x), size = bits & 0x7fffffff;
  const u32 small = tb_bits_f32(tb_f32_of_bits(size) + 0.5f) - 0x3f000000;
  const u32 normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  const u32 large = size > 0x7f800000 ? 0x7e00 : 0x7c00;
  return (u16)((size >= 0x47800000 ? large : size < 0x38800000 ? small : normal) | (bits >> 16 & 0x8000));
}
#define TB_LOAD_f16(p, i) tb_load_half(((const u16*)(p))[i])
#define TB_STORE_f16(p, i, x) (((u16*)(p))[i] = tb_store_half((float)(x)))
#define TB_ROUND_f16(x) tb_load_half(tb_store_half(x))
#define tb_f32_of_half(x) tb_load_half(x)
#define tb_half_of_f32(x) tb_store_half(x)

// Of the C library; those that it has vectorized carry the attribute that says so.
#ifdef __x86_64__ // for other processors glibc has few of them, or none, by its version
#define TB_VECTOR __attribute__((simd("notinbranch")))
#else
#define TB_VECTOR
#endif
#define TB_MATH_1(attribute, name)                       \
  extern "C" attribute float name##f(float) noexcept;    \
  extern "C" attribute double name(double) noexcept;     \
  static inline float name(float x) { return name##f(x); }
#define TB_MATH_2(attribute, name)                               \
  extern "C" attribute float name##f(float, float) noexcept;     \
  extern "C" attribute double name(double, double) noexcept;     \
  static inline float name(float x, float y) { return name##f(x, y); }
TB_MATH_1(TB_VECTOR, exp)
TB_MATH_1(TB_VECTOR, exp2)
TB_MATH_1(TB_VECTOR, expm1)
TB_MATH_1(TB_VECTOR, log)
TB_MATH_1(TB_VECTOR, log2)
TB_MATH_1(TB_VECTOR, log10)
TB_MATH_1(TB_VECTOR, log1p)
TB_MATH_1(TB_VECTOR, cos)
TB_MATH_1(TB_VECTOR, tan)
TB_MATH_1(TB_VECTOR, asin)
TB_MATH_1(TB_VECTOR, acos)
TB_MATH_1(TB_VECTOR, atan)
TB_MATH_1(TB_VECTOR, sinh)
TB_MATH_1(TB_VECTOR, cosh)
TB_MATH_1(TB_VECTOR, tanh)
TB_MATH_1(TB_VECTOR, asinh)
TB_MATH_1(TB_VECTOR, acosh)
TB_MATH_1(TB_VECTOR, atanh)
TB_MATH_1(TB_VECTOR, erf)
TB_MATH_1(TB_VECTOR, erfc)
TB_MATH_2(TB_VECTOR, pow)
TB_MATH_2(TB_VECTOR, atan2)
TB_MATH_1(, sqrt)
TB_MATH_1(, floor)
TB_MATH_1(, ceil)
TB_MATH_1(, rint)
TB_MATH_1(, trunc)
TB_MATH_1(, fabs)
TB_MATH_1(, lgamma)
TB_MATH_1(, tgamma)
// Sizes of complex numbers from two loops are compared: the one that is vectorized rounds as the other.
TB_MATH_2(, hypot)
TB_MATH_2(, fmod)
TB_MATH_2(, fmin)
TB_MATH_2(, fmax)
TB_MATH_2(, copysign)
TB_MATH_2(, nextafter)
// Under another name: with cos of the same angle compilers would call sincos, which has no vectors.
extern "C" TB_VECTOR float tb_sinf(float) noexcept __asm__("sinf");
extern "C" TB_VECTOR double tb_sin(double) noexcept __asm__("sin");
static inline float sin(float x) { return tb_sinf(x); }
static inline double sin(double x) { return tb_sin(x); }
extern "C" float ldexpf(float, int) noexcept;
extern "C" double ldexp(double, int) noexcept;
static inline float ldexp(float x, int y) { return ldexpf(x, y); }
extern "C" float frexpf(float, int*) noexcept;
extern "C" double frexp(double, int*) noexcept;
static inline float frexp(float x, int* y) { return frexpf(x, y); }
template <class X>
static inline X rsqrt(X x) {
  return 1 / sqrt(x);
}
template <class X>
static inline int isnan(X x) {
  return x != x;
}
template <class X>
static inline int isinf(X x) {
  return __builtin_isinf(x);
}
template <class X>
static inline int isfinite(X x) {
  return __builtin_isfinite(x);
}
// Of the bits: GCC 12 fails where it vectorizes __builtin_signbit of converted halves.
static inline int signbit(float x) { return (int)(tb_bits_f32(x) >> 31); }
static inline int signbit(double x) { return __builtin_signbit(x); }
static inline u32 tb_mul_hi(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define TB_ATOMIC_ADD_i32(p, x) __atomic_fetch_add((i32*)(p), (i32)(x), __ATOMIC_RELAXED)
#define TB_ATOMIC_ADD_u32(p, x) __atomic_fetch_add((u32*)(p), (u32)(x), __ATOMIC_RELAXED)
#define TB_COMPARE_EXCHANGE_32(p, old, value) \
  ([](u32* at, u32 was, u32 now) { __atomic_compare_exchange_n(at, &was, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return was; }((u32*)(p), old, value))
#define TB_COMPARE_EXCHANGE_64(p, old, value) \
  ([](u64* at, u64 was, u64 now) { __atomic_compare_exchange_n(at, &was, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return was; }((u64*)(p), old, value))
