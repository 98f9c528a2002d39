// Operators that compute each element from the same element of their inputs.
#include <string>

#include "operator.h"

using namespace sim;

#define UNARY(NAME, RESULT)                                                                  \
  SIM_OPERATOR(NAME, const aclTensor* self, aclTensor* out) {                                \
    return plan("aclnn" #NAME, workspace, executor, {in(self), in(out)}, 0, [](tensors& v) { \
      const at::Tensor& a = v[0];                                                            \
      write(v[1], RESULT);                                                                   \
    });                                                                                      \
  }
#define BINARY(NAME, RESULT)                                                                            \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclTensor* other, aclTensor* out) {                   \
    return plan("aclnn" #NAME, workspace, executor, {in(self), in(other), in(out)}, 0, [](tensors& v) { \
      const at::Tensor &a = v[0], &b = v[1];                                                            \
      write(v[2], RESULT);                                                                              \
    });                                                                                                 \
  }
#define WITH_SCALAR(NAME, RESULT)                                                                      \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclScalar* other, aclTensor* out) {                  \
    if (!other) return refuse(kNullParameter, "aclnn" #NAME ": the scalar is NULL");                   \
    return plan("aclnn" #NAME, workspace, executor, {in(self), in(out)}, 0, [b = *other](tensors& v) { \
      const at::Tensor& a = v[0];                                                                      \
      write(v[1], RESULT);                                                                             \
    });                                                                                                \
  }
#define TERNARY(NAME, RESULT)                                                                                   \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclTensor* one, const aclTensor* two, const aclScalar* value, \
               aclTensor* out) {                                                                                \
    if (!value) return refuse(kNullParameter, "aclnn" #NAME ": the scalar is NULL");                            \
    return plan("aclnn" #NAME, workspace, executor, {in(self), in(one), in(two), in(out)}, 0,                   \
                [s = *value](tensors& v) { write(v[3], RESULT(v[0], v[1], v[2], s)); });                        \
  }
#define BINARY_WITH_SCALAR(NAME, RESULT)                                                                      \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclTensor* other, const aclScalar* value, aclTensor* out) { \
    if (!value) return refuse(kNullParameter, "aclnn" #NAME ": the scalar is NULL");                          \
    return plan("aclnn" #NAME, workspace, executor, {in(self), in(other), in(out)}, 0,                        \
                [s = *value](tensors& v) { write(v[2], RESULT(v[0], v[1], s)); });                            \
  }
#define SCALED(NAME, RESULT)                                                                                  \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out) { \
    if (!other || !alpha) return refuse(kNullParameter, "aclnn" #NAME ": a scalar is NULL");                  \
    return plan("aclnn" #NAME, workspace, executor, {in(self), in(out)}, 0,                                   \
                [b = *other, s = *alpha](tensors& v) { write(v[1], RESULT(v[0], b, s)); });                   \
  }

BINARY_WITH_SCALAR(Add, at::add)
BINARY_WITH_SCALAR(Sub, at::sub)
SCALED(Adds, at::add)
SCALED(Subs, at::sub)
BINARY(Mul, at::mul(a, b))
WITH_SCALAR(Muls, at::mul(a, b))
BINARY(Div, at::div(a, b))
WITH_SCALAR(Divs, at::div(a, b))
BINARY(Maximum, at::maximum(a, b))
BINARY(Minimum, at::minimum(a, b))
WITH_SCALAR(PowTensorScalar, at::pow(a, b))
UNARY(Neg, at::neg(a))
UNARY(Abs, at::abs(a))
UNARY(Exp, at::exp(a))
UNARY(Log, at::log(a))
UNARY(Sqrt, at::sqrt(a))
UNARY(Rsqrt, at::rsqrt(a))
UNARY(Reciprocal, at::reciprocal(a))
UNARY(Sin, at::sin(a))
UNARY(Cos, at::cos(a))
UNARY(Tanh, at::tanh(a))
UNARY(Sigmoid, at::sigmoid(a))
UNARY(Erf, at::erf(a))
UNARY(Floor, at::floor(a))
UNARY(Ceil, at::ceil(a))
UNARY(Sign, at::sign(a))
UNARY(LogicalNot, at::logical_not(a))
UNARY(BitwiseNot, at::bitwise_not(a))
UNARY(IsNegInf, at::isneginf(a))
UNARY(IsFinite, at::isfinite(a))
UNARY(Relu, at::relu(a))
UNARY(Silu, at::silu(a))
BINARY(EqTensor, at::eq(a, b))
BINARY(NeTensor, at::ne(a, b))
BINARY(LtTensor, at::lt(a, b))
BINARY(LeTensor, at::le(a, b))
BINARY(GtTensor, at::gt(a, b))
BINARY(GeTensor, at::ge(a, b))
WITH_SCALAR(EqScalar, at::eq(a, b))
WITH_SCALAR(NeScalar, at::ne(a, b))
WITH_SCALAR(LtScalar, at::lt(a, b))
WITH_SCALAR(LeScalar, at::le(a, b))
WITH_SCALAR(GtScalar, at::gt(a, b))
WITH_SCALAR(GeScalar, at::ge(a, b))
BINARY(LogicalAnd, at::logical_and(a, b))
BINARY(LogicalOr, at::logical_or(a, b))
BINARY(BitwiseAndTensor, at::bitwise_and(a, b))
BINARY(BitwiseOrTensor, at::bitwise_or(a, b))
WITH_SCALAR(ClampMin, at::clamp_min(a, b))
WITH_SCALAR(ClampMax, at::clamp_max(a, b))
BINARY(SigmoidBackward, at::sigmoid_backward(a, b))
BINARY(TanhBackward, at::tanh_backward(a, b))
BINARY(SiluBackward, at::silu_backward(a, b))
TERNARY(Addcmul, at::addcmul)
TERNARY(Addcdiv, at::addcdiv)
BINARY_WITH_SCALAR(Lerps, at::lerp)
BINARY_WITH_SCALAR(ThresholdBackward, at::threshold_backward)

SIM_OPERATOR(Clamp, const aclTensor* self, const aclScalar* low, const aclScalar* high, aclTensor* out) {
  if (!low && !high) return refuse(kNullParameter, "aclnnClamp without limits");
  const auto least = low ? std::optional(*low) : std::nullopt, most = high ? std::optional(*high) : std::nullopt;
  return plan("aclnnClamp", workspace, executor, {in(self), in(out)}, 0,
              [=](tensors& v) { write(v[1], at::clamp(v[0], least, most)); });
}

SIM_OPERATOR(GeluV2, const aclTensor* self, int64_t approximate, aclTensor* out) {
  if (approximate != 0 && approximate != 1)
    return refuse(kInvalidParameter, "aclnnGeluV2: approximate %ld", long(approximate));
  return plan("aclnnGeluV2", workspace, executor, {in(self), in(out)}, 0,
              [=](tensors& v) { write(v[1], at::gelu(v[0], approximate ? "tanh" : "none")); });
}

SIM_OPERATOR(GeluBackwardV2, const aclTensor* gradient, const aclTensor* self, char* approximate, aclTensor* out) {
  if (!approximate) return refuse(kNullParameter, "aclnnGeluBackwardV2: approximate is NULL");
  return plan("aclnnGeluBackwardV2", workspace, executor, {in(gradient), in(self), in(out)}, 0,
              [how = std::string(approximate)](tensors& v) { write(v[2], at::gelu_backward(v[0], v[1], how)); });
}

SIM_OPERATOR(SWhere, const aclTensor* condition, const aclTensor* self, const aclTensor* other, aclTensor* out) {
  if (!condition || (condition->dtype != at::kBool && condition->dtype != at::kByte))
    return refuse(kInvalidParameter, "aclnnSWhere: the condition is no bool");
  return plan("aclnnSWhere", workspace, executor, {in(condition), in(self), in(other), in(out)}, 0,
              [](tensors& v) { write(v[3], at::where(v[0].to(at::kBool), v[1], v[2])); });
}

// Converts, also from floating to integer.
SIM_OPERATOR(InplaceCopy, aclTensor* self, const aclTensor* source) {
  return plan("aclnnInplaceCopy", workspace, executor, {in(self), in(source)}, 0, [](tensors& v) { v[0].copy_(v[1]); });
}

SIM_OPERATOR(InplaceFillScalar, aclTensor* self, const aclScalar* value) {
  if (!value) return refuse(kNullParameter, "aclnnInplaceFillScalar: the value is NULL");
  return plan("aclnnInplaceFillScalar", workspace, executor, {in(self)}, 0,
              [s = *value](tensors& v) { v[0].fill_(s); });
}

SIM_OPERATOR(InplaceMaskedFillScalar, aclTensor* self, const aclTensor* mask, const aclScalar* value) {
  if (!value) return refuse(kNullParameter, "aclnnInplaceMaskedFillScalar: the value is NULL");
  return plan("aclnnInplaceMaskedFillScalar", workspace, executor, {in(self), in(mask)}, 0,
              [s = *value](tensors& v) { v[0].masked_fill_(v[1], s); });
}
