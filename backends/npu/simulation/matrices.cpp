// Matrix products and convolutions, which the matrix unit does: float32, float16 and bfloat16.
#include "operator.h"

using namespace sim;

namespace {

bool is_for_cube(const aclTensor* t) {
  return t->dtype == at::kFloat || t->dtype == at::kHalf || t->dtype == at::kBFloat16;
}

int check_cube(const char* name, std::initializer_list<const aclTensor*> tensors, int8_t math) {
  for (const aclTensor* t : tensors) {
    if (!t) return refuse(kNullParameter, "%s: a tensor is NULL", name);
    if (!is_for_cube(t) || t->dtype != (*tensors.begin())->dtype)
      return refuse(kInvalidParameter, "%s: the matrix unit does not take these dtypes", name);
  }
  return math >= 0 && math <= 3 ? kOk : refuse(kInvalidParameter, "%s: cubeMathType %d", name, math);
}

// What the matrix unit multiplies: HFLOAT32 has 11 bits after the first one. `math` is 3 where that is asked for.
at::Tensor factor(const at::Tensor& x, int8_t math) {
  return math == 3 ? rounded(x, 11) : x;
}

int product(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* a, const aclTensor* b,
            aclTensor* out, int8_t math, size_t ndim) {
  if (const int error = check_cube(name, {a, b, out}, math)) return error;
  if (a->sizes.size() != ndim || b->sizes.size() != ndim) return refuse(kInvalidParameter, "%s: dimensions", name);
  return plan(name, workspace, executor, {in(a), in(b), in(out)}, 1024,
              [=](tensors& v) { write(v[2], at::matmul(factor(v[0], math), factor(v[1], math))); });
}

int sum_of_product(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* self,
                   const aclTensor* a, const aclTensor* b, const aclScalar* beta, const aclScalar* alpha,
                   aclTensor* out, int8_t math,
                   at::Tensor (*sum)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&,
                                     const at::Scalar&)) {
  if (const int error = check_cube(name, {self, a, b, out}, math)) return error;
  if (!beta || !alpha) return refuse(kNullParameter, "%s: a scalar is NULL", name);
  return plan(name, workspace, executor, {in(self), in(a), in(b), in(out)}, 1024,
              [=, before = *beta, times = *alpha](tensors& v) {
                write(v[3], sum(v[0], factor(v[1], math), factor(v[2], math), before, times));
              });
}

} // namespace

SIM_OPERATOR(Mm, const aclTensor* self, const aclTensor* other, aclTensor* out, int8_t math) {
  return product("aclnnMm", workspace, executor, self, other, out, math, 2);
}

SIM_OPERATOR(BatchMatMul, const aclTensor* self, const aclTensor* other, aclTensor* out, int8_t math) {
  return product("aclnnBatchMatMul", workspace, executor, self, other, out, math, 3);
}

SIM_OPERATOR(Addmm, const aclTensor* self, const aclTensor* a, const aclTensor* b, const aclScalar* beta,
             const aclScalar* alpha, aclTensor* out, int8_t math) {
  return sum_of_product("aclnnAddmm", workspace, executor, self, a, b, beta, alpha, out, math, at::addmm);
}

SIM_OPERATOR(Baddbmm, const aclTensor* self, const aclTensor* a, const aclTensor* b, const aclScalar* beta,
             const aclScalar* alpha, aclTensor* out, int8_t math) {
  return sum_of_product("aclnnBaddbmm", workspace, executor, self, a, b, beta, alpha, out, math, at::baddbmm);
}

// ---- convolutions ----

namespace {

int check_convolution(const char* name, const aclTensor* input, const aclIntArray* stride, const aclIntArray* padding,
                      const aclIntArray* dilation, const aclIntArray* output_padding) {
  for (const aclIntArray* list : {stride, padding, dilation, output_padding}) {
    if (!list) return refuse(kNullParameter, "%s: a list is NULL", name);
    if (list->size() + 2 != input->sizes.size())
      return refuse(kInvalidParameter, "%s: a list of another length than the image has dimensions", name);
  }
  return kOk;
}

} // namespace

SIM_OPERATOR(Convolution, const aclTensor* input, const aclTensor* weight, const aclTensor* bias,
             const aclIntArray* stride, const aclIntArray* padding, const aclIntArray* dilation, bool transposed,
             const aclIntArray* output_padding, int64_t groups, aclTensor* out, int8_t math) {
  constexpr char name[] = "aclnnConvolution";
  if (const int error = check_cube(name, {input, weight, out}, math)) return error;
  if (const int error = check_convolution(name, input, stride, padding, dilation, output_padding)) return error;
  return plan(name, workspace, executor, {in(input), in(weight), maybe(bias), in(out)}, 2048,
              [=, s = *stride, p = *padding, d = *dilation, o = *output_padding](tensors& v) {
                write(v[3],
                      at::convolution(factor(v[0], math), factor(v[1], math), v[2], s, p, d, transposed, o, groups));
              });
}

SIM_OPERATOR(ConvolutionBackward, const aclTensor* gradient, const aclTensor* input, const aclTensor* weight,
             const aclIntArray* bias_sizes, const aclIntArray* stride, const aclIntArray* padding,
             const aclIntArray* dilation, bool transposed, const aclIntArray* output_padding, int64_t groups,
             const aclBoolArray* mask, int8_t math, aclTensor* of_input, aclTensor* of_weight, aclTensor* of_bias) {
  constexpr char name[] = "aclnnConvolutionBackward";
  if (const int error = check_cube(name, {gradient, input, weight}, math)) return error;
  if (const int error = check_convolution(name, input, stride, padding, dilation, output_padding)) return error;
  if (!mask || mask->size() != 3 || !bias_sizes) return refuse(kNullParameter, "%s: mask or biasSizes", name);
  if ((*mask)[2] && *bias_sizes != aclIntArray{gradient->sizes[1]})
    return refuse(kInvalidParameter, "%s: biasSizes", name);
  const aclTensor* wanted[] = {of_input, of_weight, of_bias};
  std::array<bool, 3> of{};
  for (size_t i = 0; i < 3; ++i)
    if ((of[i] = (*mask)[i]) != (wanted[i] != nullptr))
      return refuse(kInvalidParameter, "%s: the mask and the tensors do not tell the same", name);
  return plan(name, workspace, executor,
              {in(gradient), in(input), in(weight), maybe(of_input), maybe(of_weight), maybe(of_bias)}, 2048,
              [=, b = *bias_sizes, s = *stride, p = *padding, d = *dilation, o = *output_padding](tensors& v) {
                const auto [x, w, bias] =
                    at::convolution_backward(factor(v[0], math), factor(v[1], math), factor(v[2], math),
                                             at::OptionalIntArrayRef(b), s, p, d, transposed, o, groups, of);
                write(v[3], x), write(v[4], w), write(v[5], bias);
              });
}
