// An operation of a library over the simulated driver: tensors in device memory, of which ATen computes others, in double.
#pragma once

#include <ATen/EmptyTensor.h>

#include "common/simulation/aten.h"
#include "driver.h"

namespace sim {

// A copy of what describes a tensor, which may change when the call has returned, and where it is. Without sizes: none.
struct operand {
  at::ScalarType dtype = at::ScalarType::Undefined;
  std::vector<int64_t> sizes, strides;
  CUdeviceptr address = 0;
};

struct operation {
  const char *name, *kernel; // literals: of the call, and for profilers
  std::vector<operand> operands;
  CUdeviceptr workspace;
  uint64_t workspace_bytes;
  body run;
};

int enqueue(CUstream stream, operation o);

// The result as a call asks for it, over what is there, which may be NaN if beta is 0.
void write(const at::Tensor& out, const at::Tensor& computed, double alpha, double beta);

// A float's number as tensor cores take it: its first ten bits.
inline at::Tensor to_tf32(const at::Tensor& x) {
  return rounded(x, 10);
}

inline double number_at(const void* scalar, bool is_double) {
  return is_double ? *static_cast<const double*>(scalar) : *static_cast<const float*>(scalar);
}

} // namespace sim
