/* The kernels of this example, and what they share. */
#ifndef EXAMPLE_KERNELS_H_
#define EXAMPLE_KERNELS_H_

#include "torch_backend/device.h"

extern const tb_host* host;

/* Every kernel's signature; arguments are those of the operator's schema, in order, then the outputs. */
#define KERNEL(name) tb_status name(const tb_kernel_context* context, const tb_arg* args, int32_t num_args)

KERNEL(add);
KERNEL(sub);
KERNEL(mul);
KERNEL(relu);
KERNEL(clamp);
KERNEL(where);
KERNEL(threshold_backward);
KERNEL(scale);
KERNEL(bernoulli);
KERNEL(sum);
KERNEL(softmax);
KERNEL(nonzero);
KERNEL(mm);
KERNEL(addmm);
KERNEL(convolution);

/* ---- arguments ---- */

/* NULL if the argument is None. */
static inline const tb_tensor* tensor_of(const tb_arg* arg) {
  return arg->tag == TB_ARG_TENSOR ? (const tb_tensor*)arg->v.p : NULL;
}
/* Of a Scalar, an int, a float or a bool. */
static inline double number_of(const tb_arg* arg) {
  return arg->tag == TB_ARG_FLOAT ? arg->v.f : (double)arg->v.i;
}
static inline char* first_byte(const tb_tensor* tensor) {
  return (char*)tensor->data + tensor->byte_offset;
}
int is_float32(const tb_tensor* tensor);

/* ---- the one loop ---- */

#define MAX_DIMS 16
#define MAX_OPERANDS 4

/* at[i] points at the current element of tensors[i]. */
typedef void (*element_function)(void* const* at, const void* constants);

/* Calls `body` for every position of the first tensor's shape; the others have the same shape, and strides of their
 * own. TB_STATUS_UNSUPPORTED for more than MAX_DIMS dimensions. */
tb_status for_each_element(const tb_tensor* const* tensors, int count, element_function body, const void* constants);

/* For the option "trace": names an operator that a kernel is about to compute. */
void trace(const char* op);

#endif
