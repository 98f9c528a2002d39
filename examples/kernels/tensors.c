#include <stdint.h>

#include "kernels.h"

int is_float32(const tb_tensor* tensor) {
  return tensor->dtype.code == TB_DTYPE_FLOAT && tensor->dtype.bits == 32;
}

tb_status for_each_element(const tb_tensor* const* tensors, int count, element_function body, const void* constants) {
  const tb_tensor* shape = tensors[0];
  int64_t index[MAX_DIMS] = {0};
  void* at[MAX_OPERANDS];
  if (shape->ndim > MAX_DIMS) return TB_STATUS_UNSUPPORTED;
  for (int i = 0; i < count; ++i) at[i] = first_byte(tensors[i]);
  for (;;) {
    int32_t dim = shape->ndim - 1;
    body(at, constants);
    /* As an odometer: the last dimension that is not through moves on, those after it start again. */
    for (; dim >= 0; --dim) {
      const int moves_on = ++index[dim] < shape->shape[dim];
      const int64_t steps = moves_on ? 1 : 1 - shape->shape[dim];
      for (int i = 0; i < count; ++i)
        at[i] = (char*)at[i] + steps * tensors[i]->strides[dim] * (tensors[i]->dtype.bits / 8);
      if (moves_on) break;
      index[dim] = 0;
    }
    if (dim < 0) return TB_STATUS_OK;
  }
}
