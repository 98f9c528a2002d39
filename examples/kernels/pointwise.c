/* Pointwise operators: the core has broadcast the inputs to the output's shape and given all of them one dtype. A tensor
 * that was broadcast, and a Python number, has strides of 0. */
#include <stdint.h>

#include "kernels.h"

static tb_status apply(const char* op, const tb_tensor* out, const tb_arg* inputs, int num_inputs,
                       element_function body, const void* constants) {
  const tb_tensor* tensors[MAX_OPERANDS] = {out};
  for (int i = 0; i < num_inputs; ++i) tensors[i + 1] = tensor_of(&inputs[i]);
  trace(op);
  return for_each_element(tensors, num_inputs + 1, body, constants);
}

/* ---- add: out = self + alpha * other, in the dtypes that this device has ---- */

static void add_float32(void* const* at, const void* alpha) {
  *(float*)at[0] = *(const float*)at[1] + (float)*(const double*)alpha * *(const float*)at[2];
}
static void add_float64(void* const* at, const void* alpha) {
  *(double*)at[0] = *(const double*)at[1] + *(const double*)alpha * *(const double*)at[2];
}
static void add_int64(void* const* at, const void* alpha) {
  *(int64_t*)at[0] = *(const int64_t*)at[1] + (int64_t)*(const double*)alpha * *(const int64_t*)at[2];
}

/* aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out). Its entry has no dtype_mask, so it gets
 * whatever the device stores and says here what it cannot compute: the core then uses what would serve the operator
 * without this kernel. */
KERNEL(add) {
  const tb_tensor* out = tensor_of(&args[3]);
  const double alpha = number_of(&args[2]);
  element_function body = NULL;
  (void)context, (void)num_args;
  if (is_float32(out)) body = add_float32;
  if (out->dtype.code == TB_DTYPE_FLOAT && out->dtype.bits == 64) body = add_float64;
  if (out->dtype.code == TB_DTYPE_INT && out->dtype.bits == 64) body = add_int64;
  return body ? apply("aten::add.out", out, args, 2, body, &alpha) : TB_STATUS_UNSUPPORTED;
}

/* ---- float32 only, which their dtype_mask says ---- */

static void multiply(void* const* at, const void* constants) {
  (void)constants;
  *(float*)at[0] = *(const float*)at[1] * *(const float*)at[2];
}

/* aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) */
KERNEL(mul) {
  (void)context, (void)num_args;
  return apply("aten::mul.out", tensor_of(&args[2]), args, 2, multiply, NULL);
}

static void rectify(void* const* at, const void* constants) {
  const float value = *(const float*)at[1];
  (void)constants;
  *(float*)at[0] = value > 0 || value != value ? value : 0;
}

/* aten::relu(Tensor self) -> Tensor: a functional name; the output comes last all the same */
KERNEL(relu) {
  (void)context, (void)num_args;
  return apply("aten::relu", tensor_of(&args[1]), args, 1, rectify, NULL);
}

static void pass_above(void* const* at, const void* threshold) {
  *(float*)at[0] = *(const float*)at[2] <= *(const float*)threshold ? 0 : *(const float*)at[1];
}

/* aten::threshold_backward.grad_input(Tensor grad_output, Tensor self, Scalar threshold, *, Tensor(a!) grad_input) */
KERNEL(threshold_backward) {
  const float threshold = (float)number_of(&args[2]);
  (void)context, (void)num_args;
  return apply("aten::threshold_backward.grad_input", tensor_of(&args[3]), args, 2, pass_above, &threshold);
}

struct range {
  float low, high;
  int has_low, has_high;
};

static void limit(void* const* at, const void* constants) {
  const struct range* range = constants;
  float value = *(const float*)at[1];
  if (range->has_low && value < range->low) value = range->low;
  if (range->has_high && value > range->high) value = range->high;
  *(float*)at[0] = value;
}

/* aten::clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out): optional arguments */
KERNEL(clamp) {
  const struct range range = {(float)number_of(&args[1]), (float)number_of(&args[2]), args[1].tag != TB_ARG_NONE,
                              args[2].tag != TB_ARG_NONE};
  (void)context, (void)num_args;
  return apply("aten::clamp.out", tensor_of(&args[3]), args, 1, limit, &range);
}

static void choose(void* const* at, const void* constants) {
  (void)constants;
  *(float*)at[0] = *(const uint8_t*)at[1] ? *(const float*)at[2] : *(const float*)at[3];
}

/* aten::where.self_out(Tensor condition, Tensor self, Tensor other, *, Tensor(a!) out): the condition stays a bool */
KERNEL(where) {
  (void)context, (void)num_args;
  if (tensor_of(&args[0])->dtype.code != TB_DTYPE_BOOL) return TB_STATUS_UNSUPPORTED;
  return apply("aten::where.self_out", tensor_of(&args[3]), args, 3, choose, NULL);
}

static void multiply_by(void* const* at, const void* factor) {
  *(float*)at[0] = *(const float*)at[1] * *(const float*)factor;
}

/* example::scale(Tensor x, float factor) -> Tensor: an operator of one's own, defined in Python or C++ */
KERNEL(scale) {
  const float factor = (float)number_of(&args[1]);
  (void)context, (void)num_args;
  return apply("example::scale", tensor_of(&args[2]), args, 1, multiply_by, &factor);
}
