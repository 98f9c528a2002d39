// CUDA C++ for the host's compiler: what comes before a module's text.
#include "kernel_abi.h"

using size_t = decltype(sizeof 0);

#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __restrict__ __restrict

using dim3 = sim_index;
static sim_index threadIdx, blockIdx, blockDim, gridDim;
static void (*sim_barrier)();
alignas(128) static unsigned char sim_shared[kSimSharedBytes];

static inline void __syncthreads() {
  sim_barrier();
}
static inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

template <class To, class From>
static inline To sim_bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
static inline unsigned __float_as_uint(float x) {
  return sim_bits<unsigned>(x);
}
static inline int __float_as_int(float x) {
  return sim_bits<int>(x);
}
static inline float __uint_as_float(unsigned x) {
  return sim_bits<float>(x);
}
static inline float __int_as_float(int x) {
  return sim_bits<float>(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}

// Of the C library, without its headers, which take longer to compile than most modules.
#define SIM_MATH_1(name)                    \
  extern "C" float name##f(float) noexcept; \
  extern "C" double name(double) noexcept;  \
  static inline float name(float x) {       \
    return name##f(x);                      \
  }
#define SIM_MATH_2(name)                           \
  extern "C" float name##f(float, float) noexcept; \
  extern "C" double name(double, double) noexcept; \
  static inline float name(float x, float y) {     \
    return name##f(x, y);                          \
  }
// clang-format off
#define SIM_ALL_1(X) \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(ceil) X(cos) X(cosh) X(erf) X(erfc) X(exp) X(exp2) X(expm1) \
  X(fabs) X(floor) X(lgamma) X(log) X(log10) X(log1p) X(log2) X(rint) X(sin) X(sinh) X(sqrt) X(tan) X(tanh) \
  X(tgamma) X(trunc)
// clang-format on
#define SIM_ALL_2(X) X(atan2) X(copysign) X(fmax) X(fmin) X(fmod) X(hypot) X(nextafter) X(pow)
SIM_ALL_1(SIM_MATH_1)
SIM_ALL_2(SIM_MATH_2)
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double fma(double, double, double) noexcept;
static inline float fma(float x, float y, float z) {
  return fmaf(x, y, z);
}
extern "C" float ldexpf(float, int) noexcept;
extern "C" double ldexp(double, int) noexcept;
static inline float ldexp(float x, int y) {
  return ldexpf(x, y);
}
extern "C" float frexpf(float, int*) noexcept;
extern "C" double frexp(double, int*) noexcept;
static inline float frexp(float x, int* y) {
  return frexpf(x, y);
}
template <class X>
static inline bool isnan(X x) {
  return x != x;
}
template <class X>
static inline bool isinf(X x) {
  return __builtin_isinf(x);
}
template <class X>
static inline bool isfinite(X x) {
  return __builtin_isfinite(x);
}
static inline bool signbit(float x) {
  return __float_as_uint(x) >> 31;
}
static inline bool signbit(double x) {
  return __builtin_signbit(x);
}
static inline float rsqrt(float x) {
  return 1 / sqrtf(x);
}
static inline double rsqrt(double x) {
  return 1 / sqrt(x);
}

template <class T>
static inline T atomicAdd(T* at, T x) {
  return __atomic_fetch_add(at, x, __ATOMIC_RELAXED);
}
static inline float atomicAdd(float* at, float x) {
  const float was = *at; // items run one at a time
  *at = was + x;
  return was;
}
static inline double atomicAdd(double* at, double x) {
  const double was = *at;
  *at = was + x;
  return was;
}
template <class T>
static inline T atomicCAS(T* at, T was, T now) {
  __atomic_compare_exchange_n(at, &was, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return was;
}

// All items of a block come here together, also where those of a warp would do.
template <class T>
static inline T __shfl_xor_sync(unsigned, T x, int mask) {
  static T all[1024];
  const unsigned item = threadIdx.x;
  all[item] = x;
  __syncthreads();
  const T other = all[item ^ mask];
  __syncthreads();
  return other;
}

// Instructions that modules use by name.
static inline float sim_cvt_f32_f16(unsigned short x) {
  const float scaled = sim_bits<float>((unsigned)(x & 0x7fff) << 13) * 0x1p112f;
  const unsigned bits = sim_bits<unsigned>(scaled) | ((x & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u);
  return sim_bits<float>(bits | (unsigned)(x & 0x8000) << 16);
}
static inline unsigned short sim_cvt_rn_f16_f32(float x) {
  const unsigned bits = sim_bits<unsigned>(x), size = bits & 0x7fffffff;
  const unsigned small = sim_bits<unsigned>(sim_bits<float>(size) + 0.5f) - 0x3f000000;
  const unsigned normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  const unsigned large = size > 0x7f800000 ? 0x7fff : 0x7c00;
  const unsigned kept = size >= 0x47800000 ? large : size < 0x38800000 ? small : normal;
  return (unsigned short)(size > 0x7f800000 ? 0x7fff : kept | (bits >> 16 & 0x8000));
}

template <class T>
struct sim_type {
  using plain = T;
  static constexpr bool is_pointer = false;
};
template <class T>
struct sim_type<const T> : sim_type<T> {};
template <class T>
struct sim_type<T*> {
  using plain = T*;
  static constexpr bool is_pointer = true;
};

template <auto Function>
struct sim_call;
template <class... P, void (*Function)(P...)>
struct sim_call<Function> {
  template <int... I>
  struct places {
    static void run(void** values) {
      Function(*(typename sim_type<P>::plain*)values[I]...);
    }
  };
  template <int Left, int... I>
  struct counted : counted<Left - 1, Left - 1, I...> {};
  template <int... I>
  struct counted<0, I...> : places<I...> {};

  static void run(void** values) {
    counted<sizeof...(P)>::run(values);
  }
  static constexpr sim_parameter parameters[] = {{sizeof(P), sim_type<P>::is_pointer}..., {0, false}};
};
