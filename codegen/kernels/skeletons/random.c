// Random numbers for the elements of a tensor. Goes after "philox".
//
// Element i, counted along the tensor's shape in row-major order whatever its strides, takes its numbers from the counter
// {offset / 4 + k, i / PER}: of the four that k = 0 gives, PER elements have 4 / PER each, in their order. Only what rejects
// numbers goes on to k = 1, 2, ...; it has PER 1. So the numbers depend on seed, offset, shape and dtype alone, and not on
// the device, on blocks, or on how the range is divided.
//
// DRAW            what is drawn, one of the names below
// PER             4; 2 where an element takes 64 bits; 1 where numbers may be rejected
// DIGITS, UNIT_SCALE  bits of a number of [0, 1) of this dtype, and 2^-DIGITS
// V               type of a drawn value
// TYPE_n          how operand n is stored; operand 0 is the output
// NUMBERS         declares s0, s1, ...: what came with the call
// WIDE            operands are contiguous, and what a step does of each is aligned: WIDE_DECLARE and others, as
//                 define_wide() has them
// CELL            the error cell, which follows the operands, of what is refused where CHECK fails

typedef struct {
  i64 count;
  i64 seed;
  i64 step;
  i64 op;
  i64 sizes[RANK];
  i64 strides[OPERANDS][RANK];
  tb_scalar scalars[SCALARS];
} Args;

#ifdef CONTIGUOUS
#define AT(n) at
#define PLACES(i) const Index at = (i);
#else
#define AT(n) at[n]
#define PLACES(i)     \
  Index at[OPERANDS]; \
  TB_LOCATE(at, 0, sizes, strides, RANK - 1, i, 0, OPERANDS)
#endif

#define STORE_0(x) TB_STORE_AS(TYPE_0, p0, AT(0), x)
#define STORE_1(x) TB_STORE_AS(TYPE_1, p1, AT(1), x)
#define LOAD_0 ((T)TB_LOAD_AS(TYPE_0, p0, AT(0)))
#define LOAD_1 ((T)TB_LOAD_AS(TYPE_1, p1, AT(1)))
#define LOAD_2 ((T)TB_LOAD_AS(TYPE_2, p2, AT(2)))

// Of the element at first + j.
#define CHECK(taken) if (!(taken)) tb_report(CELL, TB_INVALID_VALUE, args.op, (i64)(first + j), args.count);
#define EACH(statement) for (int j = 0; j < PER; ++j) { statement }
#if PER == 2
#define WORD_64(j) ((u64)w[2 * (j)] << 32 | w[2 * (j) + 1])
#define UNIT(j) ((T)(WORD_64(j) >> (64 - DIGITS)) * UNIT_SCALE)
#define OPEN(j) ((T)((WORD_64(j) >> 11) + 1) * UNIT_SCALE)
#else
#define UNIT(j) ((T)(w[j] >> (32 - DIGITS)) * UNIT_SCALE)
#define OPEN(j) TB_OPEN(w[j])
#endif

// Two normal numbers of two uniform ones (Box and Muller).
#define NORMAL_PAIR(j)                                          \
  {                                                             \
    const T radius = sqrt(TC(-2.0) * log(OPEN(j)));             \
    const T angle = TC(6.283185307179586477) * UNIT((j) + 1);   \
    v[j] = radius * cos(angle);                                 \
    v[(j) + 1] = radius * sin(angle);                           \
  }
#if PER == 4
#define NORMALS NORMAL_PAIR(0) NORMAL_PAIR(2)
#else
#define NORMALS NORMAL_PAIR(0)
#endif
#define STORE_VALUE STORE_0(v[j]);

// [s0, s1); what rounds to s1 is s0. Rounding to a half type does so later than T.
#define DRAW_uniform EACH(const T x = UNIT(j) * (s1 - s0) + s0; v[j] = x < s1 ? x : s0;)
#ifdef STORED_AS_HALF
#define PUT_uniform STORE_0(v[j]); if (LOAD_0 >= s1) STORE_0(s0);
#else
#define PUT_uniform STORE_VALUE
#endif
#define DRAW_normal NORMALS EACH(v[j] = v[j] * s1 + s0;)
#define PUT_normal STORE_VALUE
#define DRAW_log_normal NORMALS EACH(v[j] = exp(v[j] * s1 + s0);)
#define PUT_log_normal STORE_VALUE
#define DRAW_normal_mean NORMALS
#define PUT_normal_mean STORE_0(v[j] * s0 + LOAD_1);
#define DRAW_normal_std NORMALS
#define PUT_normal_std CHECK(LOAD_1 >= 0) STORE_0(v[j] * LOAD_1 + s0);
#define DRAW_normal_both NORMALS
#define PUT_normal_both CHECK(LOAD_2 >= 0) STORE_0(v[j] * LOAD_2 + LOAD_1);
// Never 0. s0 is 1 / lambda, s1 what is next to 0.
#define DRAW_exponential EACH(const T x = -log(OPEN(j)); v[j] = (x > s1 ? x : s1) * s0;)
#define PUT_exponential STORE_VALUE
// s0 is 1 / log(1 - p)
#define DRAW_geometric EACH(const T x = ceil(log(OPEN(j)) * s0); v[j] = x > TC(1.0) ? x : TC(1.0);)
#define PUT_geometric STORE_VALUE
#define DRAW_cauchy EACH(v[j] = s0 + s1 * tan(TC(3.14159265358979323846) * (OPEN(j) - TC(0.5)));)
#define PUT_cauchy STORE_VALUE
// s0 is p * 2^32
#define DRAW_bernoulli EACH(v[j] = (i64)w[j] < s0;)
#define PUT_bernoulli STORE_VALUE
#define DRAW_bernoulli_tensor EACH(v[j] = (T)(w[j] >> 8) * TC(5.9604644775390625e-08);)
#define PUT_bernoulli_tensor CHECK(LOAD_1 >= 0 && LOAD_1 <= 1) STORE_0(v[j] < LOAD_1);
// s0 + [0, s1); s1 is at most 2^20
#define DRAW_integers EACH(v[j] = s0 + (i64)((u64)w[j] * (u64)s1 >> 32);)
#define PUT_integers STORE_VALUE
// s1 may be any, and 0 means 2^64.
#define DRAW_wide_integers EACH(v[j] = (i64)((u64)s0 + (s1 ? tb_mul_hi_64(WORD_64(j), (u64)s1) : WORD_64(j)));)
#define PUT_wide_integers STORE_VALUE
// The output is operand 0, the mask operand 1, the input operand 2. s0 is p * 2^32 and s1 the factor.
#define DRAW_dropout EACH(v[j] = (i64)w[j] < s0;)
#define PUT_dropout STORE_0(LOAD_2 * (T)v[j] * s1); STORE_1(v[j]);

#if PER == 1
// One element's numbers, four at a time. Few enough steps are ever taken that what cannot be accepted is taken in the end.
typedef struct {
  u64 seed, first, step, n;
  u32 w[4];
} Numbers;
TB_DEVICE int more(TB_PRIVATE Numbers* numbers) {
  tb_philox(numbers->seed, numbers->step, numbers->n, numbers->w);
  return ++numbers->step - numbers->first < 64;
}
#define U(j) TB_OPEN(numbers->w[j])

TB_DEVICE T sample_poisson(TB_PRIVATE Numbers* numbers, T rate) {
  if (!(rate > 0)) return 0;
  if (rate < 10) { // as many as fit: Knuth
    const T limit = exp(-rate);
    T product = 1;
    for (int count = -1;;) {
      const int again = more(numbers);
      for (int j = 0; j < 4; ++j) {
        product *= U(j);
        ++count;
        if (product <= limit) return (T)count;
      }
      if (!again) return (T)count;
    }
  }
  // Hoermann, "The transformed rejection method for generating Poisson random variables" (1993), PTRS
  const T root = sqrt(rate), log_rate = log(rate);
  const T b = TC(0.931) + TC(2.53) * root, a = TC(-0.059) + TC(0.02483) * b;
  const T inverse_alpha = TC(1.1239) + TC(1.1328) / (b - TC(3.4)), most = TC(0.9277) - TC(3.6224) / (b - TC(2.0));
  for (;;) {
    const int again = more(numbers);
    for (int j = 0; j < 4; j += 2) {
      const T u = U(j) - TC(0.5), v = U(j + 1);
      const T us = TC(0.5) - fabs(u);
      const T k = floor((TC(2.0) * a / us + b) * u + rate + TC(0.43));
      if (us >= TC(0.07) && v <= most) return k;
      if (k < 0 || (us < TC(0.013) && v > us)) continue;
      if (log(v) + log(inverse_alpha) - log(a / (us * us) + b) <= -rate + k * log_rate - lgamma(k + TC(1.0))) return k;
    }
    if (!again) return floor(rate);
  }
}

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000)
TB_DEVICE T sample_gamma(TB_PRIVATE Numbers* numbers, T alpha) {
  T scale = 1;
  if (alpha == 0) return 0;
  if (alpha < 1) {
    more(numbers);
    scale = pow(U(0), TC(1.0) / alpha);
    alpha += 1;
  }
  const T d = alpha - TC(1.0) / TC(3.0), c = TC(1.0) / sqrt(TC(9.0) * d);
  for (;;) {
    const int again = more(numbers);
    const T x = sqrt(TC(-2.0) * log(U(0))) * cos(TC(6.283185307179586477) * U(1));
    const T y = TC(1.0) + c * x;
    if (y <= 0 && again) continue;
    const T v = y * y * y, u = U(2), xx = x * x;
    if (u < TC(1.0) - TC(0.0331) * xx * xx || !again) return scale * d * v;
    if (log(u) < TC(0.5) * xx + d * (TC(1.0) - v + log(v))) return scale * d * v;
  }
}

TB_DEVICE T stirling_tail(T k) {
  const T x = k + TC(1.0);
  return lgamma(x) - ((x - TC(0.5)) * log(x) - x + TC(0.91893853320467274178));
}

TB_DEVICE T sample_binomial_half(TB_PRIVATE Numbers* numbers, T count, T p) { // p at most 0.5
  if (count * p < 10) { // the distances between successes
    const T scale = TC(1.0) / log1p(-p);
    T sum = 0;
    for (T successes = 0;;) {
      const int again = more(numbers);
      for (int j = 0; j < 4; ++j) {
        sum += ceil(log(U(j)) * scale);
        if (sum > count) return successes;
        successes += 1;
      }
      if (!again) return successes;
    }
  }
  // Hoermann, "The generation of binomial random variates" (1993), BTRS
  const T spread = sqrt(count * p * (TC(1.0) - p));
  const T b = TC(1.15) + TC(2.53) * spread, a = TC(-0.0873) + TC(0.0248) * b + TC(0.01) * p;
  const T c = count * p + TC(0.5), v_r = TC(0.92) - TC(4.2) / b, r = p / (TC(1.0) - p);
  const T alpha = (TC(2.83) + TC(5.1) / b) * spread, m = floor((count + TC(1.0)) * p);
  for (;;) {
    const int again = more(numbers);
    for (int j = 0; j < 4; j += 2) {
      const T u = U(j) - TC(0.5);
      const T us = TC(0.5) - fabs(u);
      const T k = floor((TC(2.0) * a / us + b) * u + c);
      T v = U(j + 1);
      if (us >= TC(0.07) && v <= v_r) return k;
      if (k < 0 || k > count) continue;
      v = log(v * alpha / (a / (us * us) + b));
      if (v <= (m + TC(0.5)) * log((m + TC(1.0)) / (r * (count - m + TC(1.0)))) +
                   (count + TC(1.0)) * log((count - m + TC(1.0)) / (count - k + TC(1.0))) +
                   (k + TC(0.5)) * log(r * (count - k + TC(1.0)) / (k + TC(1.0))) + stirling_tail(m) +
                   stirling_tail(count - m) - stirling_tail(k) - stirling_tail(count - k))
        return k;
    }
    if (!again) return floor(count * p);
  }
}

TB_DEVICE T sample_binomial(TB_PRIVATE Numbers* numbers, T count, T p) {
  if (count != count || p != p) return NAN;
  if (count <= 0 || p <= 0) return 0;
  if (p >= 1) return count;
  return p <= TC(0.5) ? sample_binomial_half(numbers, count, p)
                      : count - sample_binomial_half(numbers, count, TC(1.0) - p);
}

#define NUMBERS_OF(group) \
  Numbers numbers;        \
  numbers.seed = seed;    \
  numbers.first = step;   \
  numbers.step = step;    \
  numbers.n = (u64)(group);
#define DRAW_poisson
#define PUT_poisson CHECK(LOAD_1 >= 0) STORE_0(sample_poisson(&numbers, LOAD_1));
#define DRAW_gamma
#define PUT_gamma { const T x = sample_gamma(&numbers, LOAD_1); STORE_0(x > s0 ? x : s0); }
#define DRAW_binomial
#define PUT_binomial STORE_0(sample_binomial(&numbers, LOAD_1, LOAD_2));
#define TAKE(n) NUMBERS_OF(n)
#else
#define TAKE(n) u32 w[4]; V v[PER]; tb_philox(seed, step, (u64)(n), w); TB_PASTE(DRAW_, DRAW)
#endif

TB_KERNEL(random) {
  const u64 seed = (u64)args.seed;
  const u64 step = (u64)args.step;
  const Index count = (Index)args.count;
  NUMBERS
#if defined(TB_CHUNKED) && PER > 1
  // So many at once, wanted or not, that all are computed in vectors: what those round otherwise does not depend on the size.
#define STEPS 16
  TB_FOR(block, (count + STEPS * PER - 1) / (STEPS * PER)) {
    const Index first = block * (STEPS * PER);
    V all[STEPS * PER];
    TB_INDEPENDENT
    for (int n = 0; n < STEPS; ++n) {
      TAKE(block * STEPS + n)
      for (int j = 0; j < PER; ++j) all[n * PER + j] = v[j];
    }
    TB_PRIVATE V* v = all;
    const int num = (int)TB_LEAST(count - first, STEPS * PER);
#else
  TB_FOR(n, (count + PER - 1) / PER) {
    const Index first = n * PER;
    TAKE(n)
    const int num = (int)TB_LEAST(count - first, PER);
#endif
#if defined(WIDE) && defined(TB_HAS_VECTORS)
#define SAME_STEP(operand) n
    if (num == PER) {
      WIDE_DECLARE
      WIDE_READ(0, SAME_STEP)
      {
        WIDE_SHADOWS(0)
        TB_UNROLL
        for (int j = 0; j < PER; ++j) {
          const Index at = j;
          TB_PASTE(PUT_, DRAW)
        }
      }
      WIDE_WRITE(0, SAME_STEP)
      continue;
    }
#endif
    for (int j = 0; j < num; ++j) {
      PLACES(first + j)
      TB_PASTE(PUT_, DRAW)
    }
  }
} TB_END
