/* Operators that combine elements along dimensions. Nothing is broadcast for them. */
#include <math.h>
#include <stdint.h>

#include "kernels.h"

/* Runs through one dimension of a tensor at the position of the current element. */
struct line {
  int64_t length, in_step, out_step; /* steps in bytes */
};

static void softmax_of_line(void* const* at, const void* constants) {
  const struct line* line = constants;
  const char* in = at[1];
  char* out = at[0];
  float largest = -INFINITY, total = 0;
  for (int64_t i = 0; i < line->length; ++i) largest = fmaxf(largest, *(const float*)(in + i * line->in_step));
  for (int64_t i = 0; i < line->length; ++i) {
    const float value = expf(*(const float*)(in + i * line->in_step) - largest);
    *(float*)(out + i * line->out_step) = value;
    total += value;
  }
  for (int64_t i = 0; i < line->length; ++i) *(float*)(out + i * line->out_step) /= total;
}

/* aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out) */
KERNEL(softmax) {
  const tb_tensor* self = tensor_of(&args[0]);
  tb_tensor heads = *tensor_of(&args[3]); /* the first element of every line */
  int64_t shape[MAX_DIMS];
  const int64_t dim = args[1].v.i + (args[1].v.i < 0 ? self->ndim : 0);
  struct line line;
  const tb_tensor* tensors[2];
  (void)context, (void)num_args;
  if (args[2].v.i || self->ndim == 0 || self->ndim > MAX_DIMS) return TB_STATUS_UNSUPPORTED;
  for (int32_t i = 0; i < self->ndim; ++i) shape[i] = i == dim ? 1 : self->shape[i];
  line.length = self->shape[dim];
  line.in_step = self->strides[dim] * (int64_t)sizeof(float);
  line.out_step = heads.strides[dim] * (int64_t)sizeof(float);
  heads.shape = shape;
  tensors[0] = &heads;
  tensors[1] = self;
  trace("aten::_softmax.out");
  return for_each_element(tensors, 2, softmax_of_line, &line);
}

static void accumulate(void* const* at, const void* constants) {
  (void)constants;
  *(float*)at[1] += *(const float*)at[0];
}

static void clear(void* const* at, const void* constants) {
  (void)constants;
  *(float*)at[0] = 0;
}

/* aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out) */
KERNEL(sum) {
  const tb_tensor* self = tensor_of(&args[0]);
  const tb_tensor* out = tensor_of(&args[4]);
  const int64_t* dims = args[1].v.p;
  const int keeps_dims = (int)args[2].v.i;
  int reduced[MAX_DIMS] = {0};
  int64_t strides[MAX_DIMS];
  tb_tensor spread = *out; /* out with the shape of self: a stride of 0 where it is summed */
  const tb_tensor* tensors[2];
  tb_status status;
  int32_t next = 0;
  (void)context, (void)num_args;
  if (self->ndim > MAX_DIMS) return TB_STATUS_UNSUPPORTED;
  for (int32_t i = 0; i < self->ndim; ++i) reduced[i] = args[1].tag == TB_ARG_NONE || args[1].length == 0;
  for (uint32_t i = 0; args[1].tag != TB_ARG_NONE && i < args[1].length && self->ndim > 0; ++i)
    reduced[dims[i] < 0 ? dims[i] + self->ndim : dims[i]] = 1;
  for (int32_t i = 0; i < self->ndim; ++i) {
    strides[i] = reduced[i] ? 0 : out->strides[next];
    next += keeps_dims || !reduced[i];
  }
  trace("aten::sum.IntList_out");
  status = for_each_element(&out, 1, clear, NULL);
  if (status != TB_STATUS_OK) return status;
  spread.ndim = self->ndim;
  spread.shape = self->shape;
  spread.strides = strides;
  tensors[0] = self;
  tensors[1] = &spread;
  return for_each_element(tensors, 2, accumulate, NULL);
}

static void count(void* const* at, const void* total) {
  **(int64_t* const*)total += *(const float*)at[0] != 0;
}

/* The positions that were found, and the next position to look at. */
struct search {
  const tb_tensor* self;
  const tb_tensor* out; /* a row of self->ndim numbers for each */
  int64_t found, looked_at;
};

static void record(void* const* at, const void* constants) {
  struct search* search = *(struct search* const*)constants;
  int64_t position = search->looked_at++;
  if (*(const float*)at[0] == 0) return;
  for (int32_t dim = search->self->ndim - 1; dim >= 0; --dim) {
    ((int64_t*)first_byte(search->out))[search->found * search->out->strides[0] + dim * search->out->strides[1]] =
        position % search->self->shape[dim];
    position /= search->self->shape[dim];
  }
  ++search->found;
}

/* aten::nonzero.out(Tensor self, *, Tensor(a!) out): only the data tells the output's size, so the kernel asks for it */
KERNEL(nonzero) {
  const tb_tensor* self = tensor_of(&args[0]);
  int64_t shape[2] = {0, self->ndim};
  int64_t* total = &shape[0];
  tb_tensor out = {.dtype = {TB_DTYPE_INT, 64, 1}};
  struct search search = {self, &out, 0, 0};
  struct search* state = &search;
  tb_status status;
  (void)num_args;
  if (self->ndim > MAX_DIMS) return TB_STATUS_UNSUPPORTED;
  for_each_element(&self, 1, count, &total);
  status = host->alloc_output(context, 0, 2, shape, &out);
  if (status != TB_STATUS_OK) return status;
  trace("aten::nonzero.out");
  return shape[0] == 0 || self->ndim == 0 ? TB_STATUS_OK : for_each_element(&self, 1, record, &state);
}
