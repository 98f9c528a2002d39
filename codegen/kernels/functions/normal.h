// Inverses of normal distributions, in a floating type. The methods and numbers are those of PyTorch's
// ATen/native/Math.h, which has them from the Cephes Math Library (copyright (c) 2018, Steven Moshier, 3-clause BSD license).

TB_DEVICE T tb_erfinv(T y) {
  const T size = fabs(y);
  if (!(size <= 1)) return NAN;
  if (size == 1) return copysign((T)INFINITY, y);
  T x;
  if (size <= TC(0.7)) {
    const T z = y * y;
    x = y * (((TC(-0.140543331) * z + TC(0.914624893)) * z - TC(1.645349621)) * z + TC(0.886226899)) /
        ((((TC(0.012229801) * z - TC(0.329097515)) * z + TC(1.442710462)) * z - TC(2.118377725)) * z + 1);
  } else {
    const T z = sqrt(-log((1 - size) / 2));
    x = copysign(((TC(1.641345311) * z + TC(3.429567803)) * z - TC(1.624906493)) * z - TC(1.970840454), y) /
        ((TC(1.637067800) * z + TC(3.543889200)) * z + 1);
  }
  for (int i = 0; i < 2; ++i) { // Newton's; far out erf has no digits left
    const T off = size <= TC(0.7) ? erf(x) - y : copysign((1 - size) - erfc(fabs(x)), y);
    x -= off / (TC(1.12837916709551257390) * exp(-x * x));
  }
  return x;
}

TB_DEVICE T tb_ndtri(T p) {
  if (p == 0) return -INFINITY;
  if (p == 1) return INFINITY;
  if (!(p >= 0 && p <= 1)) return NAN;
  const T tail = TC(0.13533528323661269189); // exp(-2)
  const int upper = p > 1 - tail;
  const T y = upper ? 1 - p : p;
  if (y > tail) {
    const T u = y - TC(0.5);
    const T v = u * u;
    const T x = u + u * (v * ((((TC(-5.99633501014107895267e1) * v + TC(9.80010754185999661536e1)) * v + TC(-5.66762857469070293439e1)) * v + TC(1.39312609387279679503e1)) * v + TC(-1.23916583867381258016e0)) /
                         ((((((((TC(1.00000000000000000000e0) * v + TC(1.95448858338141759834e0)) * v + TC(4.67627912898881538453e0)) * v + TC(8.63602421390890590575e1)) * v + TC(-2.25462687854119370527e2)) * v + TC(2.00260212380060660359e2)) * v + TC(-8.20372256168333339912e1)) * v + TC(1.59056225126211695515e1)) * v + TC(-1.18331621121330003142e0)));
    return x * TC(2.50662827463100050242);
  }
  const T x = sqrt(-2 * log(y));
  const T z = 1 / x;
  const T ratio = x < 8 ? ((((((((TC(4.05544892305962419923e0) * z + TC(3.15251094599893866154e1)) * z + TC(5.71628192246421288162e1)) * z + TC(4.40805073893200834700e1)) * z + TC(1.46849561928858024014e1)) * z + TC(2.18663306850790267539e0)) * z + TC(-1.40256079171354495875e-1)) * z + TC(-3.50424626827848203418e-2)) * z + TC(-8.57456785154685413611e-4)) /
                              ((((((((TC(1.00000000000000000000e0) * z + TC(1.57799883256466749731e1)) * z + TC(4.53907635128879210584e1)) * z + TC(4.13172038254672030440e1)) * z + TC(1.50425385692907503408e1)) * z + TC(2.50464946208309415979e0)) * z + TC(-1.42182922854787788574e-1)) * z + TC(-3.80806407691578277194e-2)) * z + TC(-9.33259480895457427372e-4))
                        : ((((((((TC(3.23774891776946035970e0) * z + TC(6.91522889068984211695e0)) * z + TC(3.93881025292474443415e0)) * z + TC(1.33303460815807542389e0)) * z + TC(2.01485389549179081538e-1)) * z + TC(1.23716634817820021358e-2)) * z + TC(3.01581553508235416007e-4)) * z + TC(2.65806974686737550832e-6)) * z + TC(6.23974539184983293730e-9)) /
                              ((((((((TC(1.00000000000000000000e0) * z + TC(6.02427039364742014255e0)) * z + TC(3.67983563856160859403e0)) * z + TC(1.37702099489081330271e0)) * z + TC(2.16236993594496635890e-1)) * z + TC(1.34204006088543189037e-2)) * z + TC(3.28014464682127739104e-4)) * z + TC(2.89247864745380683936e-6)) * z + TC(6.79019408009981274425e-9));
  const T result = x - log(x) / x - z * ratio;
  return upper ? result : -result;
}
