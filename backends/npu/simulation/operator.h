// The simulated libopapi: descriptors, and the two phases of a call. ATen's CPU kernels compute.
#pragma once

#include <cstdint>
#include <vector>

#include "common/simulation/aten.h"
#include "runtime.h"

// ---- descriptors ----

struct aclTensor {
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  at::ScalarType dtype;
  char* data;
};
using aclScalar = at::Scalar;
using aclIntArray = std::vector<int64_t>;
using aclBoolArray = std::vector<bool>;
using aclTensorList = std::vector<const aclTensor*>;
struct aclOpExecutor;

namespace sim {

constexpr int kNullParameter = 161001, kInvalidParameter = 161002;

// ATen's dtype for AscendCL's; Undefined for what is none.
at::ScalarType scalar_type_of(int acl_dtype);

// What a call reads or writes. Not optional: NULL is refused.
struct operand {
  const aclTensor* tensor;
  bool optional;
};
inline operand in(const aclTensor* t) {
  return {t, false};
}
inline operand maybe(const aclTensor* t) {
  return {t, true};
}

// The first phase: checks descriptors, tells how much workspace the second needs, makes the executor. Operands are first
// those of a list.
int plan(const char* name, uint64_t* workspace_bytes, aclOpExecutor** out_executor, std::vector<operand> operands,
         uint64_t needed_bytes, body run, const aclTensorList* list = nullptr);
// The second.
int run(const char* name, void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, void* stream);

// The result of an operator, if that is wanted. It has to have the output's shape, and a dtype that converts to its.
void write(const at::Tensor& out, const at::Tensor& result);

} // namespace sim

// An operator's two functions; the body is the first one's: SIM_OPERATOR(Relu, const aclTensor* self, aclTensor* out) {...}
#define SIM_OPERATOR(NAME, ...)                                                                  \
  SIM_API int aclnn##NAME(void* memory, uint64_t bytes, aclOpExecutor* executor, void* stream) { \
    return sim::run("aclnn" #NAME, memory, bytes, executor, stream);                             \
  }                                                                                              \
  SIM_API int aclnn##NAME##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspace, aclOpExecutor** executor)
