/* Matrix products and a convolution that is made of one. */
#include <stdint.h>
#include <string.h>

#include "kernels.h"

/* rows x columns floats, steps in elements. */
struct matrix {
  float* data;
  int64_t rows, columns, row_step, column_step;
};

static struct matrix matrix_of(const tb_tensor* tensor) {
  const struct matrix matrix = {(float*)first_byte(tensor), tensor->shape[0], tensor->shape[1], tensor->strides[0],
                                tensor->strides[1]};
  return matrix;
}

static float* element(const struct matrix* matrix, int64_t row, int64_t column) {
  return matrix->data + row * matrix->row_step + column * matrix->column_step;
}

/* out = beta * out + alpha * a @ b */
static void multiply(const struct matrix* a, const struct matrix* b, const struct matrix* out, float alpha,
                     float beta) {
  for (int64_t i = 0; i < out->rows; ++i) {
    for (int64_t j = 0; j < out->columns; ++j) {
      float total = 0;
      for (int64_t k = 0; k < a->columns; ++k) total += *element(a, i, k) * *element(b, k, j);
      *element(out, i, j) = alpha * total + (beta == 0 ? 0 : beta * *element(out, i, j));
    }
  }
}

/* aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) */
KERNEL(mm) {
  const struct matrix a = matrix_of(tensor_of(&args[0]));
  const struct matrix b = matrix_of(tensor_of(&args[1]));
  const struct matrix out = matrix_of(tensor_of(&args[2]));
  (void)context, (void)num_args;
  trace("aten::mm.out");
  multiply(&a, &b, &out, 1, 0);
  return TB_STATUS_OK;
}

/* aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out): no pointwise
 * operator, so broadcasting self to the output is the kernel's own business */
KERNEL(addmm) {
  const tb_tensor* self = tensor_of(&args[0]);
  const struct matrix a = matrix_of(tensor_of(&args[1]));
  const struct matrix b = matrix_of(tensor_of(&args[2]));
  const struct matrix out = matrix_of(tensor_of(&args[5]));
  const int32_t last = self->ndim - 1;
  const int64_t column_step = self->ndim > 0 && self->shape[last] > 1 ? self->strides[last] : 0;
  const int64_t row_step = self->ndim > 1 && self->shape[0] > 1 ? self->strides[0] : 0;
  (void)context, (void)num_args;
  trace("aten::addmm.out");
  for (int64_t i = 0; i < out.rows; ++i) {
    for (int64_t j = 0; j < out.columns; ++j)
      *element(&out, i, j) = ((const float*)first_byte(self))[i * row_step + j * column_step];
  }
  multiply(&a, &b, &out, (float)number_of(&args[4]), (float)number_of(&args[3]));
  return TB_STATUS_OK;
}

/* What two-dimensional convolutions are about; everything is contiguous, because the kernel asked for that. */
struct window {
  int64_t channels, height, width;     /* of the input, of one group */
  int64_t kernel_height, kernel_width; /* */
  int64_t stride[2], padding[2], dilation[2];
  int64_t out_height, out_width;
};

/* columns[c, y, x][oy, ox] = what the kernel's element (c, y, x) is multiplied with at the output's (oy, ox) */
static void unfold(const struct window* w, const float* image, float* columns) {
  for (int64_t c = 0; c < w->channels; ++c)
    for (int64_t y = 0; y < w->kernel_height; ++y)
      for (int64_t x = 0; x < w->kernel_width; ++x)
        for (int64_t oy = 0; oy < w->out_height; ++oy)
          for (int64_t ox = 0; ox < w->out_width; ++ox) {
            const int64_t iy = oy * w->stride[0] - w->padding[0] + y * w->dilation[0];
            const int64_t ix = ox * w->stride[1] - w->padding[1] + x * w->dilation[1];
            const int inside = iy >= 0 && iy < w->height && ix >= 0 && ix < w->width;
            *columns++ = inside ? image[(c * w->height + iy) * w->width + ix] : 0;
          }
}

static void read_pair(const tb_arg* list, int64_t pair[2]) {
  const int64_t* values = list->v.p;
  pair[0] = values[0];
  pair[1] = values[list->length > 1 ? 1 : 0];
}

/* aten::convolution_overrideable(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding,
 * SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor: what PyTorch asks a device like
 * this one for. Two dimensions; all else goes to the next source. */
KERNEL(convolution) {
  const tb_tensor* input = tensor_of(&args[0]);
  const tb_tensor* weight = tensor_of(&args[1]);
  const tb_tensor* bias = tensor_of(&args[2]);
  const tb_tensor* out = tensor_of(&args[9]);
  const int64_t groups = args[8].v.i;
  struct window w;
  int64_t taps, positions, out_channels;
  void* workspace;
  tb_status status;
  (void)num_args;
  if (input->ndim != 4 || args[6].v.i) return TB_STATUS_UNSUPPORTED;
  w.channels = weight->shape[1];
  w.height = input->shape[2];
  w.width = input->shape[3];
  w.kernel_height = weight->shape[2];
  w.kernel_width = weight->shape[3];
  read_pair(&args[3], w.stride);
  read_pair(&args[4], w.padding);
  read_pair(&args[5], w.dilation);
  w.out_height = out->shape[2];
  w.out_width = out->shape[3];
  taps = w.channels * w.kernel_height * w.kernel_width;
  positions = w.out_height * w.out_width;
  out_channels = weight->shape[0] / groups; /* of one group */
  status = host->alloc_workspace(context, (uint64_t)(taps * positions) * sizeof(float), &workspace);
  if (status != TB_STATUS_OK) return status;
  trace("aten::convolution_overrideable");
  for (int64_t i = 0; i < input->shape[0] * groups; ++i) {
    const int64_t group = i % groups;
    const struct matrix kernel = {(float*)first_byte(weight) + group * out_channels * taps, out_channels, taps, taps,
                                  1};
    const struct matrix columns = {workspace, taps, positions, positions, 1};
    const struct matrix result = {(float*)first_byte(out) + i * out_channels * positions, out_channels, positions,
                                  positions, 1};
    unfold(&w, (const float*)first_byte(input) + i * w.channels * w.height * w.width, workspace);
    for (int64_t c = 0; c < out_channels; ++c)
      for (int64_t p = 0; p < positions; ++p)
        *element(&result, c, p) = bias ? ((const float*)first_byte(bias))[group * out_channels + c] : 0;
    multiply(&kernel, &columns, &result, 1, 1);
  }
  return TB_STATUS_OK;
}
