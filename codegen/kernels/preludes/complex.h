// Complex numbers: T is a struct of two R. What the table of elementwise operators writes with operators and the names of
// functions of real numbers is made of these functions, as C has neither for structs.

typedef struct __attribute__((aligned(8))) { f32 re, im; } c64;
#ifdef TB_HAS_f64
typedef struct __attribute__((aligned(16))) { f64 re, im; } c128;
#endif
typedef TB_COMPLEX T;

TB_DEVICE T tb_complex(R re, R im) { T z; z.re = re; z.im = im; return z; }
#define tb_real(x) tb_complex((R)(x), (R)0)

#define TB_LOAD_c32(p, i) tb_complex((R)TB_LOAD_f16(p, 2 * (i)), (R)TB_LOAD_f16(p, 2 * (i) + 1))
#define TB_LOAD_c64(p, i) tb_complex((R)TB_LOAD_PLAIN(c64, p, i).re, (R)TB_LOAD_PLAIN(c64, p, i).im)
#define TB_LOAD_c128(p, i) tb_complex((R)TB_LOAD_PLAIN(c128, p, i).re, (R)TB_LOAD_PLAIN(c128, p, i).im)
#define TB_STORE_c32(p, i, z)                         \
  {                                                   \
    const T tb_stored = (z);                          \
    TB_STORE_f16(p, 2 * (i), (f32)tb_stored.re);      \
    TB_STORE_f16(p, 2 * (i) + 1, (f32)tb_stored.im);  \
  }
TB_DEVICE c64 tb_to_c64(T z) { c64 to; to.re = (f32)z.re; to.im = (f32)z.im; return to; }
#define TB_STORE_c64(p, i, z) TB_STORE_PLAIN(c64, p, i, tb_to_c64(z))
#ifdef TB_HAS_f64
TB_DEVICE c128 tb_to_c128(T z) { c128 to; to.re = (f64)z.re; to.im = (f64)z.im; return to; }
#define TB_STORE_c128(p, i, z) TB_STORE_PLAIN(c128, p, i, tb_to_c128(z))
#endif

// ---- arithmetic ----
TB_DEVICE T tb_c_add(T x, T y) { return tb_complex(x.re + y.re, x.im + y.im); }
TB_DEVICE T tb_c_sub(T x, T y) { return tb_complex(x.re - y.re, x.im - y.im); }
TB_DEVICE T tb_c_mul(T x, T y) { return tb_complex(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re); }
TB_DEVICE T tb_c_neg(T x) { return tb_complex(-x.re, -x.im); }
TB_DEVICE T tb_c_conj(T x) { return tb_complex(x.re, -x.im); }
TB_DEVICE int tb_c_eq(T x, T y) { return x.re == y.re && x.im == y.im; }
TB_DEVICE int tb_c_ne(T x, T y) { return !tb_c_eq(x, y); }
// By the greater part of the divisor (Smith, "Algorithm 116: complex division", 1962): squares of it could overflow.
TB_DEVICE T tb_c_div(T x, T y) {
  if (fabs(y.re) >= fabs(y.im)) {
    if (y.re == 0 && y.im == 0) return tb_complex(x.re / fabs(y.re), x.im / fabs(y.im));
    const R ratio = y.im / y.re;
    const R scale = TC(1.0) / (y.re + y.im * ratio);
    return tb_complex((x.re + x.im * ratio) * scale, (x.im - x.re * ratio) * scale);
  }
  const R ratio = y.re / y.im;
  const R scale = TC(1.0) / (y.re * ratio + y.im);
  return tb_complex((x.re * ratio + x.im) * scale, (x.im * ratio - x.re) * scale);
}
TB_DEVICE T tb_c_fabs(T x) { return tb_real(hypot(x.re, x.im)); }
TB_DEVICE T tb_c_angle(T x) { return tb_real(atan2(x.im, x.re)); }
TB_DEVICE T tb_c_sgn(T x) {
  const R size = hypot(x.re, x.im);
  if (size == 0) return tb_real(0);
  return TC(1.0) / size == INFINITY ? tb_complex(x.re / size, x.im / size) : tb_c_div(x, tb_real(size));
}
// Of the real parts.
TB_DEVICE T tb_c_complex(T re, T im) { return tb_complex(re.re, im.re); }
TB_DEVICE T tb_c_polar(T size, T angle) { return tb_complex(size.re * cos(angle.re), size.re * sin(angle.re)); }
TB_DEVICE T tb_c_lerp(T start, T end, T weight) {
  const T way = tb_c_sub(end, start);
  return weight.re * weight.re + weight.im * weight.im < TC(0.25)
             ? tb_c_add(start, tb_c_mul(weight, way))
             : tb_c_sub(end, tb_c_mul(way, tb_c_sub(tb_real(1), weight)));
}

// ---- functions; special values are those of C's Annex G ----
#define TB_IS_FINITE(x) ((x) - (x) == 0)
#ifdef TB_T_f64
#define TB_EXP_FITS 708
#else
#define TB_EXP_FITS 87
#endif
// factor * e^x * z, where e^x may be too large and the product is not.
TB_DEVICE T tb_c_times_exp(R factor, R x, R re, R im) {
  if (x <= TB_EXP_FITS || !TB_IS_FINITE(x)) return tb_complex(factor * exp(x) * re, factor * exp(x) * im);
  const R root = exp(x * TC(0.5));
  return tb_complex(root * re * factor * root, root * im * factor * root);
}
TB_DEVICE T tb_c_exp(T x) {
  if (x.im == 0) return tb_complex(exp(x.re), x.im);
  if (!TB_IS_FINITE(x.im)) {
    if (x.re == -INFINITY) return tb_real(0);
    return tb_complex(x.re == INFINITY ? x.re : x.im - x.im, x.im - x.im);
  }
  return tb_c_times_exp(TC(1.0), x.re, cos(x.im), sin(x.im));
}
TB_DEVICE T tb_c_log(T x) {
  const R most = fmax(fabs(x.re), fabs(x.im)), least = fmin(fabs(x.re), fabs(x.im));
  const int is_near_1 = most > TC(0.5) && most < TC(2.0) && x.re == x.re && x.im == x.im;
  // Sizes that are neither out of range nor rounded to few bits: 2 to the power of 64 and -4, and their logarithms.
  const R factor = most > TC(1e37) ? TC(0.0625) : most < TC(1e-30) ? TC(18446744073709551616.0) : TC(1.0);
  const R back = most > TC(1e37) ? TC(2.7725887222397811) : most < TC(1e-30) ? TC(-44.361419555836498) : TC(0.0);
  const R size = is_near_1 ? TC(0.5) * log1p((most - TC(1.0)) * (most + TC(1.0)) + least * least)
                           : log(hypot(x.re * factor, x.im * factor)) + back;
  return tb_complex(size, atan2(x.im, x.re));
}
TB_DEVICE T tb_c_scaled(T x, R factor) { return tb_complex(x.re * factor, x.im * factor); }
TB_DEVICE T tb_c_log2(T x) { return tb_c_scaled(tb_c_log(x), TC(1.44269504088896340736)); }
TB_DEVICE T tb_c_log10(T x) { return tb_c_scaled(tb_c_log(x), TC(0.43429448190325182765)); }
TB_DEVICE T tb_c_sqrt(T x) {
  if (fabs(x.im) == INFINITY) return tb_complex(INFINITY, x.im);
  if (fabs(x.re) == INFINITY) {
    const R other = x.im != x.im ? x.im : copysign(TC(0.0), x.im);
    return x.re > 0 ? tb_complex(x.re, other) : tb_complex(fabs(other), copysign(x.re, x.im));
  }
  if (x.re == 0 && x.im == 0) return tb_complex(TC(0.0), x.im);
  // Sizes of which neither the sum nor half of it is out of range.
  const int is_large = fabs(x.re) > TC(1e37) || fabs(x.im) > TC(1e37);
  const int is_small = fabs(x.re) < TC(1e-30) && fabs(x.im) < TC(1e-30);
  const R factor = is_large ? TC(0.0625) : is_small ? TC(18446744073709551616.0) : TC(1.0);
  const R back = is_large ? TC(4.0) : is_small ? TC(2.3283064365386963e-10) : TC(1.0);
  const T y = tb_c_scaled(x, factor);
  const R root = sqrt((fabs(y.re) + hypot(y.re, y.im)) * TC(0.5));
  const R other = y.im / (root * TC(2.0));
  return tb_c_scaled(x.re >= 0 || x.re != x.re ? tb_complex(root, other) : tb_complex(fabs(other), copysign(root, x.im)), back);
}
TB_DEVICE T tb_c_sinh(T x) {
  if (x.im == 0) return tb_complex(sinh(x.re), x.im);
  if (!TB_IS_FINITE(x.im)) {
    return tb_complex(x.re == 0 ? x.re : fabs(x.re) == INFINITY ? fabs(x.re) : x.im - x.im, x.im - x.im);
  }
  if (x.re == 0) return tb_complex(x.re * cos(x.im), sin(x.im));
  if (fabs(x.re) <= TB_EXP_FITS) return tb_complex(sinh(x.re) * cos(x.im), cosh(x.re) * sin(x.im));
  return tb_c_times_exp(TC(0.5), fabs(x.re), x.re < 0 ? -cos(x.im) : cos(x.im), sin(x.im));
}
TB_DEVICE T tb_c_cosh(T x) {
  if (x.im == 0) return tb_complex(cosh(x.re), x.re != x.re ? x.im : copysign(TC(0.0), x.re) * x.im);
  if (!TB_IS_FINITE(x.im)) {
    return tb_complex(fabs(x.re) == INFINITY ? fabs(x.re) : x.im - x.im, x.re == 0 ? TC(0.0) : x.im - x.im);
  }
  if (x.re == 0) return tb_complex(cos(x.im), x.re * sin(x.im));
  if (fabs(x.re) <= TB_EXP_FITS) return tb_complex(cosh(x.re) * cos(x.im), sinh(x.re) * sin(x.im));
  return tb_c_times_exp(TC(0.5), fabs(x.re), cos(x.im), x.re < 0 ? -sin(x.im) : sin(x.im));
}
TB_DEVICE T tb_c_tanh(T x) {
  if (x.im == 0) return tb_complex(tanh(x.re), x.im);
  if (!TB_IS_FINITE(x.im)) {
    if (fabs(x.re) == INFINITY) return tb_complex(copysign(TC(1.0), x.re), TC(0.0));
    return tb_complex(x.re == 0 ? x.re : x.im - x.im, x.im - x.im);
  }
  const R s = sin(x.im), c = cos(x.im);
  if (fabs(x.re) > TC(20.0)) return tb_complex(copysign(TC(1.0), x.re), TC(4.0) * s * c * exp(TC(-2.0) * fabs(x.re)));
  const R sh = sinh(x.re), by = sh * sh + c * c;
  return tb_complex(sh * cosh(x.re) / by, s * c / by);
}
// Of i times the number, and back.
TB_DEVICE T tb_c_turned(T x) { return tb_complex(-x.im, x.re); }
TB_DEVICE T tb_c_turned_back(T x) { return tb_complex(x.im, -x.re); }
TB_DEVICE T tb_c_sin(T x) { return tb_c_turned(tb_c_sinh(tb_c_turned_back(x))); }
TB_DEVICE T tb_c_cos(T x) { return tb_c_cosh(tb_c_turned(x)); }
TB_DEVICE T tb_c_tan(T x) { return tb_c_turned_back(tb_c_tanh(tb_c_turned(x))); }
// C's own multiplication, which takes a number with an infinite part for an infinite one; PyTorch's is not that.
TB_DEVICE int tb_is_infinite(T x) { return fabs(x.re) == INFINITY || fabs(x.im) == INFINITY; }
TB_DEVICE R tb_boxed(R x, int box) {
  return box || x != x ? copysign(fabs(x) == INFINITY ? TC(1.0) : TC(0.0), x) : x;
}
TB_DEVICE T tb_c_mul_as_c(T x, T y) {
  const T z = tb_c_mul(x, y);
  const int box_x = tb_is_infinite(x), box_y = tb_is_infinite(y);
  const int is_large = tb_is_infinite(tb_complex(x.re * y.re, x.im * y.im)) || tb_is_infinite(tb_complex(x.re * y.im, x.im * y.re));
  if (z.re == z.re || z.im == z.im || !(box_x || box_y || is_large)) return z;
  const T boxed_x = tb_complex(tb_boxed(x.re, box_x), tb_boxed(x.im, box_x));
  const T boxed_y = tb_complex(tb_boxed(y.re, box_y), tb_boxed(y.im, box_y));
  return tb_c_scaled(tb_c_mul(boxed_x, boxed_y), INFINITY);
}
TB_DEVICE T tb_c_pow(T x, T y) { return tb_c_exp(tb_c_mul_as_c(y, tb_c_log(x))); }
TB_DEVICE T tb_c_exp2(T x) { return tb_c_exp(tb_c_scaled(x, TC(0.69314718055994530942))); }
TB_DEVICE T tb_c_expm1(T x) {
  const R s = sin(x.im * TC(0.5));
  return tb_complex(expm1(x.re) * cos(x.im) - TC(2.0) * s * s, exp(x.re) * sin(x.im));
}
