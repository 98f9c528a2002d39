// CLBlast, where libclblast.so.1 is installed.
#pragma once

#include "cl.h"
#include "result.h"

namespace ocl {

// A matrix of row-major order, or its transpose, `offset` elements into a buffer. `batch_stride` in elements.
struct blas_matrix {
  cl_mem buffer;
  size_t offset, leading_dimension, batch_stride;
  bool transposed;
};

bool has_clblast();

// c = alpha * a @ b + beta * c for `batch` matrices of m x k, k x n and m x n; what c held is not read if beta is 0. Of
// float32 or float64. As an enqueuing function: OpenCL's error codes, or CLBlast's.
cl_int gemm(bool is_double, size_t batch, size_t m, size_t n, size_t k, double alpha, const blas_matrix& a,
            const blas_matrix& b, double beta, const blas_matrix& c, cl_command_queue queue, cl_event* out_event);

} // namespace ocl
