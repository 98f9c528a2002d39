// CUDA C++ for the host's compiler: what comes before a module's text. It has what generated kernels use.
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

using dim3 = simt_index;
static simt_index threadIdx, blockIdx, blockDim, gridDim;
static unsigned simt_barriers;
static const simt_host* simt_runner;
alignas(128) static unsigned char simt_shared[kSimtSharedBytes];
extern "C" __attribute__((visibility("hidden"))) const unsigned char __bss_start[], _end[]; // the linker's

// Where races are looked for the compiler calls __tsan_* before each access, as for its thread sanitizer, which is not
// there. What is UNCHECKED says itself what it does to the kernel's memory.
#ifdef __SANITIZE_THREAD__
#define SIMT_UNCHECKED __attribute__((no_sanitize_thread))
#define SIMT_TOUCH(at, bytes, how, since) simt_runner->access(at, bytes, how, since)
#define SIMT_HOOK(name, bytes, how)                                                          \
  extern "C" __attribute__((visibility("hidden"), no_sanitize_thread)) void name(void* at) { \
    simt_runner->access(at, bytes, how, simt_barriers);                                      \
  }
#define SIMT_HOOKS_OF(prefix, bytes, reads, writes)     \
  SIMT_HOOK(__tsan_##prefix##read##bytes, bytes, reads) \
  SIMT_HOOK(__tsan_##prefix##write##bytes, bytes, writes)
#define SIMT_HOOKS(bytes)                                            \
  SIMT_HOOKS_OF(, bytes, kSimtRead, kSimtWrite)                      \
  SIMT_HOOKS_OF(unaligned_, bytes, kSimtRead, kSimtWrite)            \
  SIMT_HOOKS_OF(volatile_, bytes, kSimtAtomicRead, kSimtAtomicWrite) \
  SIMT_HOOKS_OF(unaligned_volatile_, bytes, kSimtAtomicRead, kSimtAtomicWrite)
SIMT_HOOKS(1)
SIMT_HOOKS(2)
SIMT_HOOKS(4)
SIMT_HOOKS(8)
SIMT_HOOKS(16)
#define SIMT_RANGE_HOOK(name, how)                                                                         \
  extern "C" __attribute__((visibility("hidden"), no_sanitize_thread)) void name(void* at, size_t bytes) { \
    simt_runner->access(at, bytes, how, simt_barriers);                                                    \
  }
SIMT_RANGE_HOOK(__tsan_read_range, kSimtRead)
SIMT_RANGE_HOOK(__tsan_write_range, kSimtWrite)
extern "C" __attribute__((visibility("hidden"))) void __tsan_init() {}
extern "C" __attribute__((visibility("hidden"))) void __tsan_func_entry(void*) {}
extern "C" __attribute__((visibility("hidden"))) void __tsan_func_exit() {}
#else
#define SIMT_UNCHECKED
#define SIMT_TOUCH(at, bytes, how, since)
#endif

static inline void __syncthreads() {
  simt_runner->wait_for_block();
}
static inline unsigned simt_item() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

template <class To, class From>
static inline To simt_bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
static inline unsigned __float_as_uint(float x) {
  return simt_bits<unsigned>(x);
}
static inline int __float_as_int(float x) {
  return simt_bits<int>(x);
}
static inline float __uint_as_float(unsigned x) {
  return simt_bits<float>(x);
}
static inline float __int_as_float(int x) {
  return simt_bits<float>(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}

// Of the C library, without its headers, which take longer to compile than most modules.
#define SIMT_MATH_1(name)                   \
  extern "C" float name##f(float) noexcept; \
  extern "C" double name(double) noexcept;  \
  static inline float name(float x) {       \
    return name##f(x);                      \
  }
#define SIMT_MATH_2(name)                          \
  extern "C" float name##f(float, float) noexcept; \
  extern "C" double name(double, double) noexcept; \
  static inline float name(float x, float y) {     \
    return name##f(x, y);                          \
  }
// clang-format off
#define SIMT_ALL_1(X) \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(ceil) X(cos) X(cosh) X(erf) X(erfc) X(exp) X(exp2) X(expm1) \
  X(fabs) X(floor) X(lgamma) X(log) X(log10) X(log1p) X(log2) X(rint) X(sin) X(sinh) X(sqrt) X(tan) X(tanh) \
  X(tgamma) X(trunc)
// clang-format on
#define SIMT_ALL_2(X) X(atan2) X(copysign) X(fmax) X(fmin) X(fmod) X(hypot) X(nextafter) X(pow)
SIMT_ALL_1(SIMT_MATH_1)
SIMT_ALL_2(SIMT_MATH_2)
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
SIMT_UNCHECKED static inline T atomicAdd(T* at, T x) {
  SIMT_TOUCH(at, sizeof(T), kSimtAtomicWrite, simt_barriers);
  return __atomic_fetch_add(at, x, __ATOMIC_RELAXED);
}
template <class T>
SIMT_UNCHECKED static inline T simt_add_number(T* at, T x) {
  SIMT_TOUCH(at, sizeof(T), kSimtAtomicWrite, simt_barriers);
  T was, now;
  __atomic_load(at, &was, __ATOMIC_RELAXED);
  do {
    now = was + x;
  } while (!__atomic_compare_exchange(at, &was, &now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return was;
}
static inline float atomicAdd(float* at, float x) {
  return simt_add_number(at, x);
}
static inline double atomicAdd(double* at, double x) {
  return simt_add_number(at, x);
}
template <class T>
SIMT_UNCHECKED static inline T atomicCAS(T* at, T was, T now) {
  SIMT_TOUCH(at, sizeof(T), kSimtAtomicWrite, simt_barriers);
  __atomic_compare_exchange_n(at, &was, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return was;
}

// What the items of a warp show each other lies in two places by turns: nobody writes to the one before all have come to
// the turn of the other, and so have read it.
static unsigned char simt_turns[kSimtItems];
SIMT_UNCHECKED static inline unsigned simt_turn() {
  return simt_turns[simt_item()] ^= 1;
}
template <class T>
SIMT_UNCHECKED static inline T __shfl_xor_sync(unsigned, T x, int mask) {
  static T all[2][kSimtItems];
  const unsigned item = simt_item(), turn = simt_turn();
  all[turn][item] = x;
  simt_runner->wait_for_warp();
  return all[turn][item ^ mask];
}

// Instructions that modules use by name, with their operands in order.
static inline void simt_cvt_f32_f16(float& y, unsigned short x) {
  const float scaled = simt_bits<float>((unsigned)(x & 0x7fff) << 13) * 0x1p112f;
  const unsigned bits = simt_bits<unsigned>(scaled) | ((x & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u);
  y = simt_bits<float>(bits | (unsigned)(x & 0x8000) << 16);
}
static inline void simt_cvt_rn_f16_f32(unsigned short& y, float x) {
  const unsigned bits = simt_bits<unsigned>(x), size = bits & 0x7fffffff;
  const unsigned small = simt_bits<unsigned>(simt_bits<float>(size) + 0.5f) - 0x3f000000;
  const unsigned normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  const unsigned large = size > 0x7f800000 ? 0x7fff : 0x7c00;
  const unsigned kept = size >= 0x47800000 ? large : size < 0x38800000 ? small : normal;
  y = (unsigned short)(size > 0x7f800000 ? 0x7fff : kept | (bits >> 16 & 0x8000));
}
static inline unsigned short simt_bf16(float x) {
  const unsigned bits = simt_bits<unsigned>(x);
  return x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline void simt_ex2_approx_ftz_f32(float& y, float x) {
  y = exp2f(x);
}
static inline void simt_cvt_rn_f16x2_f32(unsigned& y, float high, float low) {
  unsigned short halves[2];
  simt_cvt_rn_f16_f32(halves[0], low);
  simt_cvt_rn_f16_f32(halves[1], high);
  y = (unsigned)halves[1] << 16 | halves[0];
}
static inline void simt_cvt_rn_bf16x2_f32(unsigned& y, float high, float low) {
  y = (unsigned)simt_bf16(high) << 16 | simt_bf16(low);
}

SIMT_UNCHECKED static inline void simt_fence_acq_rel_gpu() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  simt_runner->fence();
}

static inline float simt_half(unsigned short x, bool brain) {
  float y = simt_bits<float>((unsigned)x << 16);
  if (!brain) simt_cvt_f32_f16(y, x);
  return y;
}
// Two halves at once, which are one word.
static inline unsigned long long __cvta_generic_to_global(const void* at) {
  return (unsigned long long)at;
}
SIMT_UNCHECKED static inline void simt_add_pair(bool brain, unsigned long long at, unsigned pair) {
  if (at % 4 != 0) __builtin_trap();
  auto* word = (unsigned*)at;
  SIMT_TOUCH(word, 4, kSimtAtomicWrite, simt_barriers);
  unsigned was = __atomic_load_n(word, __ATOMIC_RELAXED), now = 0;
  do {
    now = 0;
    for (unsigned n = 0; n < 2; ++n) {
      const float sum =
          simt_half((unsigned short)(was >> 16 * n), brain) + simt_half((unsigned short)(pair >> 16 * n), brain);
      unsigned short half = simt_bf16(sum);
      if (!brain) simt_cvt_rn_f16_f32(half, sum);
      now |= (unsigned)half << 16 * n;
    }
  } while (!__atomic_compare_exchange_n(word, &was, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
static inline void simt_red_global_add_noftz_f16x2(unsigned long long at, unsigned pair) {
  simt_add_pair(false, at, pair);
}
static inline void simt_red_global_add_noftz_bf16x2(unsigned long long at, unsigned pair) {
  simt_add_pair(true, at, pair);
}

// Matrices of a warp, of which item `lane` has row lane / 4 and the columns from lane % 4 * 2 on, two in a word.
static inline unsigned long long __cvta_generic_to_shared(const void* at) {
  return (unsigned long long)((const unsigned char*)at - simt_shared);
}
SIMT_UNCHECKED static inline void simt_load_matrices(unsigned* to[4], unsigned at, bool transposed) {
  static const unsigned short* all[2][kSimtItems];
  const unsigned item = simt_item(), turn = simt_turn(), row = item % 32 / 4, column = item % 4 * 2;
  all[turn][item] = (const unsigned short*)(simt_shared + (int)at);
  SIMT_TOUCH(all[turn][item], 16, kSimtRead, simt_barriers);
  simt_runner->wait_for_warp();
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto* rows = all[turn] + item / 32 * 32 + matrix * 8;
    const unsigned short low = transposed ? rows[column][row] : rows[row][column];
    const unsigned short high = transposed ? rows[column + 1][row] : rows[row][column + 1];
    *to[matrix] = (unsigned)high << 16 | low;
  }
}
static inline void simt_ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                                                 unsigned at) {
  unsigned* to[4] = {&a, &b, &c, &d};
  simt_load_matrices(to, at, false);
}
static inline void simt_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned& a, unsigned& b, unsigned& c,
                                                                       unsigned& d, unsigned at) {
  unsigned* to[4] = {&a, &b, &c, &d};
  simt_load_matrices(to, at, true);
}
// What an item has begun to copy is done when it waits: no sooner than a GPU may.
struct simt_copy {
  unsigned char* to;
  const void* from;
  int bytes, group;
  unsigned since; // barriers
};
static simt_copy simt_copies[kSimtItems][256];
static int simt_copies_of[kSimtItems], simt_groups_of[kSimtItems];
SIMT_UNCHECKED static inline void simt_cp_async_cg_shared_global(unsigned to, const void* from, int bytes) {
  const unsigned item = simt_item();
  simt_copies[item][simt_copies_of[item]++] = {simt_shared + (int)to, from, bytes, simt_groups_of[item], simt_barriers};
}
SIMT_UNCHECKED static inline void simt_cp_async_commit_group() {
  ++simt_groups_of[simt_item()];
}
SIMT_UNCHECKED static inline void simt_cp_async_wait_group(int but) {
  const unsigned item = simt_item();
  int left = 0;
  for (int n = 0; n < simt_copies_of[item]; ++n) {
    const simt_copy copy = simt_copies[item][n];
    if (copy.group >= simt_groups_of[item] - but) {
      simt_copies[item][left++] = copy;
    } else {
      SIMT_TOUCH(copy.to, 16, kSimtWrite, copy.since);
      if (copy.bytes) SIMT_TOUCH(copy.from, (unsigned)copy.bytes, kSimtRead, copy.since);
      __builtin_memset(copy.to, 0, 16);
      __builtin_memcpy(copy.to, copy.from, (unsigned)copy.bytes);
    }
  }
  simt_copies_of[item] = left;
}
SIMT_UNCHECKED static inline void simt_add_product(bool brain, float& s0, float& s1, float& s2, float& s3, unsigned a0,
                                                   unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  struct factors {
    float left[16][16], right[16][8];
  };
  static factors all[2][kSimtItems / kSimtWarp];
  const unsigned item = simt_item(), row = item % 32 / 4, column = item % 4 * 2;
  const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  factors& f = all[simt_turn()][item / 32];
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned part = 0; part < 4; ++part)
      f.left[row + part % 2 * 8][column + half + part / 2 * 8] =
          simt_half((unsigned short)(a[part] >> 16 * half), brain);
    for (unsigned part = 0; part < 2; ++part)
      f.right[column + half + part * 8][row] = simt_half((unsigned short)(b[part] >> 16 * half), brain);
  }
  simt_runner->wait_for_warp();
  float* sums[4] = {&s0, &s1, &s2, &s3};
  for (unsigned n = 0; n < 4; ++n)
    for (unsigned k = 0; k < 16; ++k) *sums[n] += f.left[row + n / 2 * 8][k] * f.right[k][column + n % 2];
}
template <class... Operands>
static inline void simt_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(Operands&... operands) {
  simt_add_product(false, operands...);
}
template <class... Operands>
static inline void simt_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(Operands&... operands) {
  simt_add_product(true, operands...);
}

template <class T>
struct simt_type {
  using plain = T;
  static constexpr bool is_pointer = false;
};
template <class T>
struct simt_type<const T> : simt_type<T> {};
template <class T>
struct simt_type<T*> {
  using plain = T*;
  static constexpr bool is_pointer = true;
};

template <auto Function>
struct simt_call;
template <class... P, void (*Function)(P...)>
struct simt_call<Function> {
  template <int... I>
  struct places {
    SIMT_UNCHECKED static void run(void* const* values) {
      Function(*(typename simt_type<P>::plain*)values[I]...);
    }
  };
  template <int Left, int... I>
  struct counted : counted<Left - 1, Left - 1, I...> {};
  template <int... I>
  struct counted<0, I...> : places<I...> {};

  static void run(void* const* values) {
    counted<sizeof...(P)>::run(values);
  }
  static constexpr simt_parameter parameters[] = {{sizeof(P), simt_type<P>::is_pointer}..., {0, false}};
};
