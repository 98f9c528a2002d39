// Operators that compute each element from the same element of their inputs.
#include <algorithm>
#include <array>

#include "operator.h"

using namespace sim;

namespace {

// What a result may be.
enum class rule { promoted, floating, truth };

// `f` gets the inputs' elements and then the scalars, all double or all int64_t. Inputs are broadcast.
template <typename F>
int pointwise(const char* name, uint64_t* workspace, aclOpExecutor** executor, std::vector<const aclTensor*> inputs,
              std::vector<const aclScalar*> scalars, const aclTensor* out, rule is, F f) {
  bool floats = is == rule::floating;
  std::vector<operand> operands;
  for (const aclTensor* t : inputs) {
    if (!t || !out) return refuse(kNullParameter, "%s: a tensor is NULL", name);
    floats = floats || is_floating(t->dtype);
    operands.push_back(in(t));
    const size_t added = out->sizes.size() - t->sizes.size();
    bool fits = t->sizes.size() <= out->sizes.size();
    for (size_t i = 0; fits && i < t->sizes.size(); ++i)
      fits = t->sizes[i] == out->sizes[added + i] || t->sizes[i] == 1;
    if (!fits) return refuse(kInvalidParameter, "%s: an input is not of the output's shape", name);
  }
  std::vector<aclScalar> numbers;
  for (const aclScalar* s : scalars) {
    if (!s) return refuse(kNullParameter, "%s: a scalar is NULL", name);
    floats = floats || s->dtype == kDouble || s->dtype == kFloat;
    numbers.push_back(*s);
  }
  if (floats && is != rule::truth && !is_floating(out->dtype))
    return refuse(kInvalidParameter, "%s: a result with fractions in an integer tensor", name);
  operands.push_back(in(out));
  return plan(name, workspace, executor, operands, 0, [=](std::vector<view>& v) {
    const view to = v.back();
    const auto written = to.offsets();
    std::vector<std::vector<int64_t>> read;
    for (size_t i = 0; i + 1 < v.size(); ++i) {
      v[i] = v[i].expanded(to.sizes);
      read.push_back(v[i].offsets());
    }
    std::array<double, 8> x{};
    std::array<int64_t, 8> n{};
    for (size_t j = 0; j < numbers.size(); ++j) x[read.size() + j] = numbers[j].f, n[read.size() + j] = numbers[j].i;
    for (size_t e = 0; e < written.size(); ++e) {
      if (floats) {
        for (size_t i = 0; i < read.size(); ++i) x[i] = v[i].number(read[i][e]);
        to.store(written[e], static_cast<double>(f(x.data())));
      } else {
        for (size_t i = 0; i < read.size(); ++i) n[i] = v[i].integer(read[i][e]);
        to.store_integer(written[e], static_cast<int64_t>(f(n.data())));
      }
    }
  });
}

// As if there were no sum: integers wrap around.
template <typename T>
T scaled(T a, T b, T alpha) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(alpha) * static_cast<uint64_t>(b));
  else
    return a + alpha * b;
}

} // namespace

#define UNARY(NAME, RULE, EXPRESSION)                                                                     \
  SIM_OPERATOR(NAME, const aclTensor* self, aclTensor* out) {                                             \
    return pointwise("aclnn" #NAME, workspace, executor, {self}, {}, out, rule::RULE, [](const auto* x) { \
      const auto a = x[0];                                                                                \
      return EXPRESSION;                                                                                  \
    });                                                                                                   \
  }
#define BINARY(NAME, RULE, EXPRESSION)                                                                           \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclTensor* other, aclTensor* out) {                            \
    return pointwise("aclnn" #NAME, workspace, executor, {self, other}, {}, out, rule::RULE, [](const auto* x) { \
      const auto a = x[0], b = x[1];                                                                             \
      return EXPRESSION;                                                                                         \
    });                                                                                                          \
  }
#define WITH_SCALAR(NAME, RULE, EXPRESSION)                                                                    \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclScalar* other, aclTensor* out) {                          \
    return pointwise("aclnn" #NAME, workspace, executor, {self}, {other}, out, rule::RULE, [](const auto* x) { \
      const auto a = x[0], b = x[1];                                                                           \
      return EXPRESSION;                                                                                       \
    });                                                                                                        \
  }
#define SUM(NAME, SECOND, SIGN)                                                                                 \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out) {   \
    return pointwise("aclnn" #NAME, workspace, executor, {self, other}, {alpha}, out, rule::promoted,           \
                     [](const auto* x) { return scaled(x[0], x[1], SIGN x[2]); });                              \
  }                                                                                                             \
  SIM_OPERATOR(SECOND, const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out) { \
    return pointwise("aclnn" #SECOND, workspace, executor, {self}, {other, alpha}, out, rule::promoted,         \
                     [](const auto* x) { return scaled(x[0], x[1], SIGN x[2]); });                              \
  }

SUM(Add, Adds, +)
SUM(Sub, Subs, -)
BINARY(Mul, promoted, a* b)
WITH_SCALAR(Muls, promoted, a* b)
BINARY(Div, floating, a / b)
WITH_SCALAR(Divs, floating, a / b)
BINARY(Maximum, promoted, a != a || a > b ? a : b)
BINARY(Minimum, promoted, a != a || a < b ? a : b)
WITH_SCALAR(PowTensorScalar, promoted, std::pow(a, b))
UNARY(Neg, promoted, -a)
UNARY(Abs, promoted, a < 0 || (a == 0 && std::signbit(static_cast<double>(a))) ? -a : a)
UNARY(Exp, floating, std::exp(a))
UNARY(Log, floating, std::log(a))
UNARY(Sqrt, floating, std::sqrt(a))
UNARY(Rsqrt, floating, 1 / std::sqrt(a))
UNARY(Reciprocal, floating, 1.0 / static_cast<double>(a))
UNARY(Sin, floating, std::sin(a))
UNARY(Cos, floating, std::cos(a))
UNARY(Tanh, floating, std::tanh(a))
UNARY(Sigmoid, floating, 1 / (1 + std::exp(-static_cast<double>(a))))
UNARY(Erf, floating, std::erf(a))
UNARY(Floor, promoted, std::floor(a))
UNARY(Ceil, promoted, std::ceil(a))
UNARY(Sign, promoted, (a > 0) - (a < 0))
UNARY(LogicalNot, truth, a == 0)
UNARY(IsNegInf, truth, std::isinf(static_cast<double>(a)) && a < 0)
UNARY(IsFinite, truth, std::isfinite(static_cast<double>(a)))
UNARY(Relu, promoted, a < 0 ? 0 : a)
UNARY(Silu, floating, a / (1 + std::exp(-static_cast<double>(a))))
BINARY(EqTensor, truth, a == b)
BINARY(NeTensor, truth, a != b)
BINARY(LtTensor, truth, a < b)
BINARY(LeTensor, truth, a <= b)
BINARY(GtTensor, truth, a > b)
BINARY(GeTensor, truth, a >= b)
WITH_SCALAR(EqScalar, truth, a == b)
WITH_SCALAR(NeScalar, truth, a != b)
WITH_SCALAR(LtScalar, truth, a < b)
WITH_SCALAR(LeScalar, truth, a <= b)
WITH_SCALAR(GtScalar, truth, a > b)
WITH_SCALAR(GeScalar, truth, a >= b)
BINARY(LogicalAnd, truth, a != 0 && b != 0)
BINARY(LogicalOr, truth, a != 0 || b != 0)
WITH_SCALAR(ClampMin, promoted, a < b ? b : a)
WITH_SCALAR(ClampMax, promoted, a > b ? b : a)
BINARY(SigmoidBackward, floating, a * b * (1 - b))
BINARY(TanhBackward, floating, a * (1 - b * b))

SIM_OPERATOR(BitwiseNot, const aclTensor* self, aclTensor* out) {
  if (!self || is_floating(self->dtype)) return refuse(kInvalidParameter, "aclnnBitwiseNot of numbers with fractions");
  const bool truth = self->dtype == kBool;
  return pointwise("aclnnBitwiseNot", workspace, executor, {self}, {}, out, rule::promoted,
                   [truth](const auto* x) { return truth ? !x[0] : ~static_cast<int64_t>(x[0]); });
}

#define BITWISE(NAME, OPERATION)                                                                 \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclTensor* other, aclTensor* out) {            \
    return pointwise("aclnn" #NAME, workspace, executor, {self, other}, {}, out, rule::promoted, \
                     [](const auto* x) { return int64_t(x[0]) OPERATION int64_t(x[1]); });       \
  }
BITWISE(BitwiseAndTensor, &)
BITWISE(BitwiseOrTensor, |)

SIM_OPERATOR(Clamp, const aclTensor* self, const aclScalar* low, const aclScalar* high, aclTensor* out) {
  if (!low && !high) return refuse(kNullParameter, "aclnnClamp without limits");
  const bool has_low = low, has_high = high;
  return pointwise("aclnnClamp", workspace, executor, {self}, {low ? low : high, high ? high : low}, out,
                   rule::promoted, [=](const auto* x) {
                     auto a = x[0];
                     if (has_low && a < x[1]) a = x[1];
                     if (has_high && a > x[2]) a = x[2];
                     return a;
                   });
}

SIM_OPERATOR(Addcmul, const aclTensor* self, const aclTensor* one, const aclTensor* two, const aclScalar* value,
             aclTensor* out) {
  return pointwise("aclnnAddcmul", workspace, executor, {self, one, two}, {value}, out, rule::promoted,
                   [](const auto* x) { return x[0] + x[3] * x[1] * x[2]; });
}

SIM_OPERATOR(Addcdiv, const aclTensor* self, const aclTensor* one, const aclTensor* two, const aclScalar* value,
             aclTensor* out) {
  return pointwise("aclnnAddcdiv", workspace, executor, {self, one, two}, {value}, out, rule::floating,
                   [](const auto* x) { return x[0] + x[3] * x[1] / x[2]; });
}

SIM_OPERATOR(Lerps, const aclTensor* self, const aclTensor* end, const aclScalar* weight, aclTensor* out) {
  return pointwise("aclnnLerps", workspace, executor, {self, end}, {weight}, out, rule::floating, [](const auto* x) {
    return std::abs(static_cast<double>(x[2])) < 0.5 ? x[0] + x[2] * (x[1] - x[0]) : x[1] - (x[1] - x[0]) * (1 - x[2]);
  });
}

SIM_OPERATOR(ThresholdBackward, const aclTensor* gradient, const aclTensor* self, const aclScalar* threshold,
             aclTensor* out) {
  return pointwise("aclnnThresholdBackward", workspace, executor, {gradient, self}, {threshold}, out, rule::promoted,
                   [](const auto* x) { return x[1] <= x[2] ? 0 : x[0]; });
}

SIM_OPERATOR(SiluBackward, const aclTensor* gradient, const aclTensor* self, aclTensor* out) {
  return pointwise("aclnnSiluBackward", workspace, executor, {gradient, self}, {}, out, rule::floating,
                   [](const auto* x) {
                     const double s = 1 / (1 + std::exp(-static_cast<double>(x[1])));
                     return x[0] * s * (1 + x[1] * (1 - s));
                   });
}

namespace {
constexpr double kSqrtHalf = 0.70710678118654752440, kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;
} // namespace

SIM_OPERATOR(GeluV2, const aclTensor* self, int64_t approximate, aclTensor* out) {
  if (approximate != 0 && approximate != 1)
    return refuse(kInvalidParameter, "aclnnGeluV2: approximate %ld", long(approximate));
  return pointwise("aclnnGeluV2", workspace, executor, {self}, {}, out, rule::floating, [=](const auto* x) {
    const double a = x[0];
    if (approximate) return 0.5 * a * (1 + std::tanh(kSqrtTwoOverPi * (a + 0.044715 * a * a * a)));
    return 0.5 * a * (1 + std::erf(a * kSqrtHalf));
  });
}

SIM_OPERATOR(GeluBackwardV2, const aclTensor* gradient, const aclTensor* self, char* approximate, aclTensor* out) {
  if (!approximate) return refuse(kNullParameter, "aclnnGeluBackwardV2: approximate is NULL");
  const bool tanh = std::string(approximate) == "tanh";
  if (!tanh && std::string(approximate) != "none")
    return refuse(kInvalidParameter, "aclnnGeluBackwardV2: approximate \"%s\"", approximate);
  return pointwise(
      "aclnnGeluBackwardV2", workspace, executor, {gradient, self}, {}, out, rule::floating, [=](const auto* x) {
        const double g = x[0], a = x[1];
        if (!tanh) return g * (0.5 * (1 + std::erf(a * kSqrtHalf)) + a * kInverseSqrtTwoPi * std::exp(-0.5 * a * a));
        const double t = std::tanh(kSqrtTwoOverPi * (a + 0.044715 * a * a * a));
        return g * (0.5 * (1 + t) + 0.5 * a * (1 - t * t) * kSqrtTwoOverPi * (1 + 3 * 0.044715 * a * a));
      });
}

SIM_OPERATOR(SWhere, const aclTensor* condition, const aclTensor* self, const aclTensor* other, aclTensor* out) {
  if (!condition || (condition->dtype != kBool && condition->dtype != kUint8))
    return refuse(kInvalidParameter, "aclnnSWhere: the condition is no bool");
  return pointwise("aclnnSWhere", workspace, executor, {condition, self, other}, {}, out, rule::promoted,
                   [](const auto* x) { return x[0] != 0 ? x[1] : x[2]; });
}

// Converts, also from floating to integer.
SIM_OPERATOR(InplaceCopy, aclTensor* self, const aclTensor* source) {
  return pointwise("aclnnInplaceCopy", workspace, executor, {source}, {}, self, rule::truth,
                   [](const auto* x) { return x[0]; });
}

SIM_OPERATOR(InplaceFillScalar, aclTensor* self, const aclScalar* value) {
  if (!self || !value) return refuse(kNullParameter, "aclnnInplaceFillScalar: NULL");
  const aclScalar number = *value;
  return plan("aclnnInplaceFillScalar", workspace, executor, {in(self)}, 0, [=](std::vector<view>& v) {
    for (const int64_t at : v[0].offsets())
      is_floating(v[0].dtype) || number.dtype == kDouble ? v[0].store(at, number.f) : v[0].store_integer(at, number.i);
  });
}

SIM_OPERATOR(InplaceMaskedFillScalar, aclTensor* self, const aclTensor* mask, const aclScalar* value) {
  if (!value) return refuse(kNullParameter, "aclnnInplaceMaskedFillScalar: the value is NULL");
  const aclScalar number = *value;
  return plan("aclnnInplaceMaskedFillScalar", workspace, executor, {in(self), in(mask)}, 0, [=](std::vector<view>& v) {
    const auto where = v[1].expanded(v[0].sizes).offsets(), at = v[0].offsets();
    for (size_t i = 0; i < at.size(); ++i)
      if (v[1].integer(where[i]))
        is_floating(v[0].dtype) ? v[0].store(at[i], number.f) : v[0].store_integer(at[i], number.i);
  });
}
