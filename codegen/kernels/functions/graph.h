// What graphs of torch.compile call. Goes after "philox", "whole" and "integral".
#undef T

// Element `offset` of what inductor's `seed` gives: uniform in [0, 1), normal, or of [low, high).
TB_DEVICE f32 tb_graph_rand(i64 seed, i64 offset) {
  u32 w[4];
  tb_philox((u64)seed, 0, (u64)offset, w);
  return (f32)(w[0] >> 8) * 5.9604644775390625e-08f;
}
TB_DEVICE f32 tb_graph_randn(i64 seed, i64 offset) {
  u32 w[4];
  tb_philox((u64)seed, 0, (u64)offset, w);
  const f32 open = (f32)w[0] * 2.3283064365386963e-10f + 1.1641532182693481e-10f;
  return sqrt(-2.0f * log(open)) * cos(6.283185307179586477f * ((f32)(w[1] >> 8) * 5.9604644775390625e-08f));
}
TB_DEVICE i64 tb_graph_randint(i64 seed, i64 offset, i64 low, i64 high) {
  u32 w[4];
  tb_philox((u64)seed, 0, (u64)offset, w);
  return (i64)((u64)low + tb_mul_hi_64((u64)w[0] << 32 | w[1], (u64)high - (u64)low));
}

#if defined(__OPENCL_VERSION__) && defined(TB_CHUNKED)
// Drivers for processors compute erf and logarithms one by one; of these, compilers make vectors.
#define TB_IN_LINE __attribute__((always_inline)) TB_DEVICE
// 2^n times a polynomial of what is left of x, as Cephes has it: 1 ulp. n is rounded by what is added to it.
TB_IN_LINE f32 tb_graph_exp(f32 value) {
  const f32 x = value > 89.0f ? 89.0f : value < -104.0f ? -104.0f : value;
  const f32 turns = x * 1.44269504088896341f + 12582912.0f, n = turns - 12582912.0f;
  const f32 r = x - n * 0.693359375f - n * -2.12194440e-4f;
  f32 p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const i32 power = (i32)tb_bits_f32(turns) - 0x4b400000, first = power >> 1;
  return p * tb_f32_of_bits((u32)(first + 127) << 23) * tb_f32_of_bits((u32)(power - first + 127) << 23);
}
// As musl has it: 1 ulp.
TB_IN_LINE f32 tb_graph_log(f32 value) {
  const i32 is_small = value < 1.17549435e-38f;
  const u32 bits = tb_bits_f32(is_small ? value * 8388608.0f : value) + (0x3f800000u - 0x3f3504f3u);
  const f32 n = (f32)((i32)(bits >> 23) - (is_small ? 150 : 127));
  const f32 f = tb_f32_of_bits((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const f32 s = f / (2.0f + f), z = s * s, w = z * z, square = 0.5f * f * f;
  const f32 rest = z * (0.66666662693f + w * 0.28498786688f) + w * (0.40000972152f + w * 0.24279078841f);
  const f32 log_of = s * (square + rest) + n * 9.0580006145e-06f - square + f + n * 6.9313812256e-01f;
  return value > 0.0f ? (value == INFINITY ? value : log_of) : value == 0.0f ? -INFINITY : NAN;
}
// The error of 1 + x is that of the quotient too.
TB_IN_LINE f32 tb_graph_log1p(f32 x) {
  const f32 y = 1.0f + x, quotient = x / (y - 1.0f), log_of = tb_graph_log(y);
  return y == 1.0f ? x : y == INFINITY ? y : log_of * quotient;
}
// Quotients of polynomials, as Eigen has them.
TB_IN_LINE f32 tb_graph_tanh(f32 value) {
  const f32 x = value > 9.0f ? 9.0f : value < -9.0f ? -9.0f : value, y = x * x;
  f32 p = -2.76076847742355e-16f;
  p = p * y + 2.00018790482477e-13f;
  p = p * y - 8.60467152213735e-11f;
  p = p * y + 5.12229709037114e-08f;
  p = p * y + 1.48572235717979e-05f;
  p = p * y + 6.37261928875436e-04f;
  p = p * y + 4.89352455891786e-03f;
  f32 q = 1.19825839466702e-06f;
  q = q * y + 1.18534705686654e-04f;
  q = q * y + 2.26843463243900e-03f;
  q = q * y + 4.89352518554385e-03f;
  return x * p / q;
}
TB_IN_LINE f32 tb_graph_erf(f32 value) {
  const f32 x = value > 4.0f ? 4.0f : value < -4.0f ? -4.0f : value, y = x * x;
  f32 p = -2.72614225801306e-10f;
  p = p * y + 2.77068142495902e-08f;
  p = p * y - 2.10102402082508e-06f;
  p = p * y - 5.69250639462346e-05f;
  p = p * y - 7.34990630326855e-04f;
  p = p * y - 2.95459980854025e-03f;
  p = p * y - 1.60960333262415e-02f;
  f32 q = -1.45660718464996e-05f;
  q = q * y - 2.13374055278905e-04f;
  q = q * y - 1.68282697438203e-03f;
  q = q * y - 7.37332916720468e-03f;
  q = q * y - 1.42647390514189e-02f;
  return x * p / q;
}
#else
#define tb_graph_exp(x) exp(x)
#define tb_graph_log(x) log(x)
#define tb_graph_log1p(x) log1p(x)
#define tb_graph_tanh(x) tanh(x)
#define tb_graph_erf(x) erf(x)
#endif

// The containing word is exchanged until nobody has changed it in between, where it cannot be added to.
#ifdef TB_ADDS_OF_ALL_WORDS
#define TB_ADD_TO_WORD(name, bits, part)                                                                 \
  TB_DEVICE void tb_atomic_add_##name(TB_GLOBAL char* p, i64 place, part x) {                            \
    TB_ATOMIC_ADD_##name((TB_GLOBAL part*)p + place, x);                                                 \
  }
#else
#define TB_ADD_TO_WORD(name, bits, part)                                                                 \
  TB_DEVICE void tb_atomic_add_##name(TB_GLOBAL char* p, i64 place, part x) {                            \
    TB_GLOBAL u##bits* const at = (TB_GLOBAL u##bits*)p + place;                                         \
    u##bits old = *(volatile TB_GLOBAL u##bits*)at;                                                      \
    for (;;) {                                                                                           \
      union { u##bits word; part value; } now;                                                           \
      now.word = old;                                                                                    \
      now.value = now.value + x;                                                                         \
      const u##bits was = TB_COMPARE_EXCHANGE_##bits(at, old, now.word);                                 \
      if (was == old) return;                                                                            \
      old = was;                                                                                         \
    }                                                                                                    \
  }
#endif
#define TB_ADD_TO_HALF(name, TO, FROM)                                                                    \
  TB_DEVICE void tb_atomic_add_##name(TB_GLOBAL char* p, i64 place, f32 x) {                             \
    TB_GLOBAL char* const address = p + place * 2;                                                       \
    const u32 inside = ((u32)(size_t)address & 3u) * 8u;                                                 \
    TB_GLOBAL u32* const at = (TB_GLOBAL u32*)(address - inside / 8u);                                   \
    u32 old = *(volatile TB_GLOBAL u32*)at;                                                              \
    for (;;) {                                                                                           \
      const f32 sum = TO((u16)(old >> inside)) + x;                                                      \
      const u32 now = (old & ~(0xffffu << inside)) | ((u32)FROM(sum) << inside);                         \
      const u32 was = TB_COMPARE_EXCHANGE_32(at, old, now);                                              \
      if (was == old) return;                                                                            \
      old = was;                                                                                         \
    }                                                                                                    \
  }
#define TB_F32_OF_BF16(x) tb_f32_of_bits((u32)(x) << 16)
