// For expressions in a floating type.

TB_DEVICE T tb_clamp(T x, int has_min, T min, int has_max, T max) {
  const T y = has_min ? (x != x || x > min ? x : min) : x;
  return has_max ? (y != y || y < max ? y : max) : y;
}

TB_DEVICE T tb_remainder(T x, T y) {
  const T rest = fmod(x, y);
  return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}

// As Python's: the quotient of what the remainder leaves, which is whole but for rounding.
TB_DEVICE T tb_floor_divide(T x, T y) {
  const T rest = fmod(x, y);
  const T quotient = (x - rest) / y - (T)(rest != 0 && (y < 0) != (rest < 0));
  const T whole = floor(quotient);
  const T nearest = quotient - whole > TC(0.5) ? whole + TC(1.0) : whole;
  return y == 0 ? x / y : quotient != 0 ? nearest : copysign(TC(0.0), x / y);
}

TB_DEVICE T tb_lerp(T start, T end, T weight) {
  return fabs(weight) < TC(0.5) ? start + weight * (end - start) : end - (end - start) * (TC(1.0) - weight);
}

TB_DEVICE T tb_round_decimals(T x, i64 decimals) {
  const T power = pow(TC(10.0), (T)(decimals < 0 ? -decimals : decimals));
  return decimals < 0 ? rint(x / power) * power : rint(x * power) / power;
}

TB_DEVICE T tb_mantissa(T x) {
  int exponent = 0;
  return frexp(x, &exponent);
}
TB_DEVICE T tb_exponent(T x) {
  int exponent = 0;
  frexp(x, &exponent);
  return x - x == 0 ? (T)exponent : TC(0.0);
}

#ifdef TB_V // which kernels of compiled graphs, that compute in several dtypes, do not have
// Of the values that the dtype has, which are fewer than T's for the half types.
TB_DEVICE T tb_nextafter(T x, T y) {
  if (x != x || y != y) return NAN;
  if (x == y) return y;
  if (fabs(x) == INFINITY) return copysign(TB_V_MAX, x);
  int exponent = 0;
  const int is_power_of_two = fabs(frexp(x, &exponent)) == TC(0.5), is_to_zero = (x > 0) == (y < x);
  const int step = exponent - TB_V_DIGITS - (is_power_of_two && is_to_zero);
  const T distance = ldexp(TC(1.0), x == 0 || step < TB_V_LEAST_EXPONENT ? TB_V_LEAST_EXPONENT : step);
  return y > x ? x + distance : x - distance;
}
#endif

TB_DEVICE T tb_logaddexp(T x, T y) {
  const T largest = x != x || x > y ? x : y;
  return x == y && fabs(x) == INFINITY ? x : largest + log1p(exp(-fabs(x - y)));
}
TB_DEVICE T tb_logaddexp2(T x, T y) {
  const T largest = x != x || x > y ? x : y;
  return x == y && fabs(x) == INFINITY ? x : largest + log1p(exp2(-fabs(x - y))) * TC(1.44269504088896340736);
}

TB_DEVICE T tb_logit(T x, int has_eps, T eps) {
  const T z = has_eps && x < eps ? eps : has_eps && x > TC(1.0) - eps ? TC(1.0) - eps : x;
  return log(z / (TC(1.0) - z));
}
TB_DEVICE T tb_logit_backward(T grad, T x, int has_eps, T eps) {
  const int limits = has_eps && !(eps < 0);
  const T low = limits ? eps : TC(0.0);
  if (x < low || x > TC(1.0) - low) return limits ? TC(0.0) : (T)NAN;
  return grad / (x * (TC(1.0) - x));
}

TB_DEVICE T tb_gelu_tanh_backward(T grad, T x) {
  const T beta = TC(0.79788456080286535588);
  const T kappa = TC(0.044715);
  const T t = tanh(beta * (x + kappa * x * x * x));
  return grad * (TC(0.5) * (TC(1.0) + t) +
                 TC(0.5) * x * (TC(1.0) - t * t) * beta * (TC(1.0) + TC(3.0) * kappa * x * x));
}
TB_DEVICE T tb_silu_backward(T grad, T x) {
  const T sigmoid = TC(1.0) / (TC(1.0) + exp(-x));
  return grad * sigmoid * (TC(1.0) + x * (TC(1.0) - sigmoid));
}
TB_DEVICE T tb_mish_backward(T grad, T x) {
  const T sigmoid = TC(1.0) / (TC(1.0) + exp(-x));
  const T t = tanh(log1p(exp(x)));
  return grad * (t + x * sigmoid * (TC(1.0) - t * t));
}

// Losses between two elements.
TB_DEVICE T tb_squared_error(T x, T y) { return (x - y) * (x - y); }
TB_DEVICE T tb_smooth_l1(T x, T y, T beta) {
  const T off = fabs(x - y);
  return off < beta ? TC(0.5) * off * off / beta : off - TC(0.5) * beta;
}
TB_DEVICE T tb_huber(T x, T y, T delta) {
  const T off = fabs(x - y);
  return off <= delta ? TC(0.5) * off * off : delta * (off - TC(0.5) * delta);
}
TB_DEVICE T tb_binary_cross_entropy(T x, T y) {
  const T no = log1p(-x), yes = log(x);
  return (y - 1) * (no < -100 ? -100 : no) - y * (yes < -100 ? -100 : yes);
}

// The derivatives of losses that are quadratic near 0 and linear beyond.
TB_DEVICE T tb_smooth_l1_slope(T x, T beta) { return x <= -beta ? -TC(1.0) : x >= beta ? TC(1.0) : x / beta; }
TB_DEVICE T tb_huber_slope(T x, T delta) { return x <= -delta ? -delta : x >= delta ? delta : x; }
