// For expressions in an integer type. Nothing is divided by zero, nor the smallest number by -1: processors end the program.

#define TB_IS_MINUS_1(x) ((T)-1 < 0 && (x) == -1)

TB_DEVICE T tb_whole_clamp(T x, int has_min, T min, int has_max, T max) {
  const T y = has_min && x < min ? min : x;
  return has_max && y > max ? max : y;
}

TB_DEVICE T tb_negate(T x) { return (T)(0 - (u64)x); }

TB_DEVICE T tb_quotient(T x, T y) {
  return y == 0 ? 0 : TB_IS_MINUS_1(y) ? tb_negate(x) : x / y;
}
TB_DEVICE T tb_fmod(T x, T y) {
  return y == 0 || TB_IS_MINUS_1(y) ? 0 : x % y;
}
TB_DEVICE T tb_floor_quotient(T x, T y) {
  return tb_quotient(x, y) - (T)(tb_fmod(x, y) != 0 && (x < 0) != (y < 0));
}
TB_DEVICE T tb_modulo(T x, T y) {
  const T rest = tb_fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

TB_DEVICE T tb_power(T x, T exponent) {
  if (exponent < 0) return x == 1 ? 1 : TB_IS_MINUS_1(x) ? (exponent % 2 == 0 ? 1 : -1) : 0;
  u64 result = 1, base = (u64)x;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result *= base;
    base *= base;
  }
  return (T)result;
}

TB_DEVICE T tb_gcd(T x, T y) {
  T a = x < 0 ? tb_negate(x) : x, b = y < 0 ? tb_negate(y) : y;
  while (a != 0) {
    const T rest = tb_fmod(b, a);
    b = a;
    a = rest;
  }
  return b;
}
TB_DEVICE T tb_lcm(T x, T y) {
  const T divisor = tb_gcd(x, y);
  const T multiple = (T)((u64)tb_quotient(x, divisor) * (u64)y);
  return multiple < 0 ? tb_negate(multiple) : multiple;
}
