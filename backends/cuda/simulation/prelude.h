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

// Instructions that modules use by name, with their operands in order.
static inline void sim_cvt_f32_f16(float& y, unsigned short x) {
  const float scaled = sim_bits<float>((unsigned)(x & 0x7fff) << 13) * 0x1p112f;
  const unsigned bits = sim_bits<unsigned>(scaled) | ((x & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u);
  y = sim_bits<float>(bits | (unsigned)(x & 0x8000) << 16);
}
static inline void sim_cvt_rn_f16_f32(unsigned short& y, float x) {
  const unsigned bits = sim_bits<unsigned>(x), size = bits & 0x7fffffff;
  const unsigned small = sim_bits<unsigned>(sim_bits<float>(size) + 0.5f) - 0x3f000000;
  const unsigned normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  const unsigned large = size > 0x7f800000 ? 0x7fff : 0x7c00;
  const unsigned kept = size >= 0x47800000 ? large : size < 0x38800000 ? small : normal;
  y = (unsigned short)(size > 0x7f800000 ? 0x7fff : kept | (bits >> 16 & 0x8000));
}
static inline unsigned short sim_bf16(float x) {
  const unsigned bits = sim_bits<unsigned>(x);
  return x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline void sim_ex2_approx_ftz_f32(float& y, float x) {
  y = exp2f(x);
}
static inline void sim_cvt_rn_f16x2_f32(unsigned& y, float high, float low) {
  unsigned short halves[2];
  sim_cvt_rn_f16_f32(halves[0], low);
  sim_cvt_rn_f16_f32(halves[1], high);
  y = (unsigned)halves[1] << 16 | halves[0];
}
static inline void sim_cvt_rn_bf16x2_f32(unsigned& y, float high, float low) {
  y = (unsigned)sim_bf16(high) << 16 | sim_bf16(low);
}

// Matrices of a warp, of which item `lane` has row lane / 4 and the columns from lane % 4 * 2 on, two in a word. As for
// shuffles, all items of the block come together.
static inline unsigned long long __cvta_generic_to_shared(const void* at) {
  return (unsigned long long)((const unsigned char*)at - sim_shared);
}
static inline void sim_load_matrices(unsigned* to[4], unsigned at, bool transposed) {
  static const unsigned short* all[1024];
  const unsigned item = threadIdx.x, row = item % 32 / 4, column = item % 4 * 2;
  all[item] = (const unsigned short*)(sim_shared + (int)at);
  __syncthreads();
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto* rows = all + item / 32 * 32 + matrix * 8;
    const unsigned short low = transposed ? rows[column][row] : rows[row][column];
    const unsigned short high = transposed ? rows[column + 1][row] : rows[row][column + 1];
    *to[matrix] = (unsigned)high << 16 | low;
  }
  __syncthreads();
}
static inline void sim_ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                                                unsigned at) {
  unsigned* to[4] = {&a, &b, &c, &d};
  sim_load_matrices(to, at, false);
}
static inline void sim_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned& a, unsigned& b, unsigned& c,
                                                                      unsigned& d, unsigned at) {
  unsigned* to[4] = {&a, &b, &c, &d};
  sim_load_matrices(to, at, true);
}
// What an item has begun to copy is done when it waits: no sooner than a GPU may.
struct sim_copy {
  unsigned char* to;
  const void* from;
  int bytes, group;
};
static sim_copy sim_copies[1024][256];
static int sim_copies_of[1024], sim_groups_of[1024];
static inline void sim_cp_async_cg_shared_global(unsigned to, const void* from, int bytes) {
  const unsigned item = threadIdx.x;
  sim_copies[item][sim_copies_of[item]++] = {sim_shared + (int)to, from, bytes, sim_groups_of[item]};
}
static inline void sim_cp_async_commit_group() {
  ++sim_groups_of[threadIdx.x];
}
static inline void sim_cp_async_wait_group(int but) {
  const unsigned item = threadIdx.x;
  int left = 0;
  for (int n = 0; n < sim_copies_of[item]; ++n) {
    const sim_copy copy = sim_copies[item][n];
    if (copy.group >= sim_groups_of[item] - but) {
      sim_copies[item][left++] = copy;
    } else {
      __builtin_memset(copy.to, 0, 16);
      __builtin_memcpy(copy.to, copy.from, (unsigned)copy.bytes);
    }
  }
  sim_copies_of[item] = left;
}
static inline float sim_half(unsigned short x, bool brain) {
  float y = sim_bits<float>((unsigned)x << 16);
  if (!brain) sim_cvt_f32_f16(y, x);
  return y;
}
static inline void sim_add_product(bool brain, float& s0, float& s1, float& s2, float& s3, unsigned a0, unsigned a1,
                                   unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  static float left[32][16][16], right[32][16][8]; // of each warp
  const unsigned item = threadIdx.x, warp = item / 32, row = item % 32 / 4, column = item % 4 * 2;
  const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned part = 0; part < 4; ++part)
      left[warp][row + part % 2 * 8][column + half + part / 2 * 8] =
          sim_half((unsigned short)(a[part] >> 16 * half), brain);
    for (unsigned part = 0; part < 2; ++part)
      right[warp][column + half + part * 8][row] = sim_half((unsigned short)(b[part] >> 16 * half), brain);
  }
  __syncthreads();
  float* sums[4] = {&s0, &s1, &s2, &s3};
  for (unsigned n = 0; n < 4; ++n)
    for (unsigned k = 0; k < 16; ++k) *sums[n] += left[warp][row + n / 2 * 8][k] * right[warp][k][column + n % 2];
  __syncthreads();
}
template <class... Operands>
static inline void sim_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(Operands&... operands) {
  sim_add_product(false, operands...);
}
template <class... Operands>
static inline void sim_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(Operands&... operands) {
  sim_add_product(true, operands...);
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
