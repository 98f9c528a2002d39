// The gamma function's relatives, in a floating type. The methods and numbers are those of PyTorch's ATen/native/Math.h,
// which has them from the Cephes Math Library (copyright (c) 2018, Steven Moshier, 3-clause BSD license).

TB_DEVICE T tb_zeta(T x, T q) {
  TB_CONSTANT_TABLE(T, bernoulli, 12) = {
      TC(12.0), TC(-720.0), TC(30240.0), TC(-1209600.0), TC(47900160.0), TC(-1.8924375803183791606e9),
      TC(7.47242496e10), TC(-2.950130727918164224e12), TC(1.1646782814350067249e14), TC(-4.5979787224074726105e15),
      TC(1.8152105401943546773e17), TC(-7.1661652561756670113e18)};
  const T epsilon = TC(1.11022302462515654042e-16);
  if (x == 1) return INFINITY;
  if (x < 1) return NAN;
  if (q <= 0) {
    if (q == floor(q)) return INFINITY;
    if (x != floor(x)) return NAN;
  }
  T sum = pow(q, -x), a = q, b = 0;
  for (int i = 0; i < 9 || a <= TC(9.0); ++i) {
    a += 1;
    b = pow(a, -x);
    sum += b;
    if (-epsilon * sum < b && b < epsilon * sum) return sum;
    // Too small for T. For infinite arguments PyTorch's is NaN then; below 1 the terms may still grow.
    if (sum == 0 && b == 0 && a > 1 && x + q < INFINITY) return sum;
  }
  const T w = a;
  sum += b * w / (x - 1) - TC(0.5) * b;
  a = 1;
  T k = 0;
  for (int i = 0; i < 12; ++i) {
    a *= x + k;
    b /= w;
    const T term = a * b / bernoulli[i];
    sum += term;
    if (fabs(term / sum) < epsilon) return sum;
    k += 1;
    a *= x + k;
    b /= w;
    k += 1;
  }
  return sum;
}

TB_DEVICE T tb_digamma_positive(T x) {
  T result = 0;
  for (; x < 10; x += 1) result -= 1 / x;
  if (x == 10) return result + TC(2.25175258906672110764);
  const T z = 1 / (x * x);
  const T series =
      z * (TC(8.33333333333333333333e-2) -
           z * (TC(8.33333333333333333333e-3) -
                z * (TC(3.96825396825396825397e-3) -
                     z * (TC(4.16666666666666666667e-3) -
                          z * (TC(7.57575757575757575758e-3) -
                               z * (TC(2.10927960927960927961e-2) - z * TC(8.33333333333333333333e-2)))))));
  return result + log(x) - TC(0.5) / x - (x < TC(1.0e17) ? series : TC(0.0));
}
TB_DEVICE T tb_digamma(T x) {
  const T pi = TC(3.14159265358979323846);
  if (x == 0) return copysign((T)INFINITY, -x);
  if (x > 0 || x != x) return tb_digamma_positive(x);
  return x == trunc(x) ? (T)NAN : tb_digamma_positive(1 - x) - pi / tan(pi * (x - trunc(x)));
}

TB_DEVICE T tb_trigamma(T x) {
  const T pi = TC(3.14159265358979323846);
  const T sine = sin(pi * x);
  const int reflected = x < TC(0.5);
  T result = reflected ? -(pi * pi) / (sine * sine) : TC(0.0);
  T y = reflected ? 1 - x : x;
  for (int i = 0; i < 6; ++i) {
    result += 1 / (y * y);
    y += 1;
  }
  const T z = 1 / (y * y);
  result += (1 + 1 / (2 * y) + z * (TC(1.0) / 6 - z * (TC(1.0) / 30 - z * (TC(1.0) / 42)))) / y;
  return reflected ? -result : result;
}

TB_DEVICE T tb_polygamma(i64 n, T x) {
  if (n == 0) return tb_digamma(x);
  if (n == 1) return tb_trigamma(x);
  const T factor = exp(lgamma((T)n + 1)) * tb_zeta((T)(n + 1), x);
  return n % 2 != 0 ? factor : -factor;
}
