/* A pointwise operator whose inputs keep their dtypes, and whose numbers stay numbers: TB_KERNEL_MIXED_DTYPES and
 * TB_KERNEL_NUMBERS. No converted copies are made for it, and no tensor of one element for the 2 of x - 2. */
#include <stdint.h>

#include "kernels.h"

static int is(tb_dtype dtype, uint8_t code, uint8_t bits) {
  return dtype.code == code && dtype.bits == bits && dtype.lanes == 1;
}

static int is_known(tb_dtype dtype) {
  return is(dtype, TB_DTYPE_FLOAT, 32) || is(dtype, TB_DTYPE_FLOAT, 64) || is(dtype, TB_DTYPE_INT, 64) ||
         is(dtype, TB_DTYPE_INT, 32);
}

static double load(const void* at, tb_dtype dtype) {
  if (dtype.code == TB_DTYPE_FLOAT) return dtype.bits == 32 ? *(const float*)at : *(const double*)at;
  return dtype.bits == 32 ? (double)*(const int32_t*)at : (double)*(const int64_t*)at;
}

static void store(void* at, tb_dtype dtype, double value) {
  if (dtype.bits == 32) {
    *(float*)at = (float)value;
  } else {
    *(double*)at = value;
  }
}

/* An input is a tensor, the position-th that the loop walks, or a number: a position of 0. */
struct input {
  int position;
  tb_dtype dtype;
  double number;
};

struct difference {
  struct input inputs[2];
  tb_dtype out, computed;
  double alpha;
};

static double value_of(const struct input* input, void* const* at) {
  return input->position ? load(at[input->position], input->dtype) : input->number;
}

static void subtract(void* const* at, const void* constants) {
  const struct difference* d = constants;
  const double a = value_of(&d->inputs[0], at), b = value_of(&d->inputs[1], at);
  if (d->computed.bits == 32) {
    store(at[0], d->out, (float)a - (float)d->alpha * (float)b);
  } else {
    store(at[0], d->out, a - d->alpha * b);
  }
}

/* aten::sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) */
KERNEL(sub) {
  const tb_tensor* tensors[MAX_OPERANDS] = {tensor_of(&args[3])};
  struct difference d = {.out = tensors[0]->dtype, .computed = context->compute_dtype, .alpha = number_of(&args[2])};
  int count = 1;
  (void)num_args;
  if (d.computed.code != TB_DTYPE_FLOAT || d.computed.bits < 32 || d.out.code != TB_DTYPE_FLOAT || d.out.bits < 32)
    return TB_STATUS_UNSUPPORTED;
  for (int i = 0; i < 2; ++i) {
    const tb_tensor* tensor = tensor_of(&args[i]);
    if (tensor) {
      if (!is_known(tensor->dtype)) return TB_STATUS_UNSUPPORTED;
      d.inputs[i].position = count;
      d.inputs[i].dtype = tensor->dtype;
      tensors[count++] = tensor;
    } else {
      d.inputs[i].number = number_of(&args[i]);
    }
  }
  trace("aten::sub.out");
  return for_each_element(tensors, count, subtract, &d);
}
