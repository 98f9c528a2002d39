// The simulated libopapi: descriptors, and the two phases of a call.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime.h"

// ---- descriptors ----

struct aclTensor {
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  int dtype, format;
  char* data;
};
struct aclScalar {
  int dtype;
  double f;
  int64_t i;
};
struct aclIntArray {
  std::vector<int64_t> values;
};
struct aclBoolArray {
  std::vector<bool> values;
};
struct aclTensorList {
  std::vector<const aclTensor*> tensors;
};
struct aclOpExecutor;

namespace sim {

enum dtype : int {
  kFloat = 0,
  kHalf = 1,
  kInt8 = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 6,
  kInt64 = 9,
  kDouble = 11,
  kBool = 12,
  kBfloat16 = 27,
};

constexpr int kNullParameter = 161001, kInvalidParameter = 161002;

SIM_SHARED int64_t item_bytes(int dtype); // 0 for what is none
SIM_SHARED bool is_floating(int dtype);

// A tensor while a command runs: where its elements are.
struct SIM_SHARED view {
  std::vector<int64_t> sizes, strides;
  int dtype = 0;
  char* data = nullptr; // of the first element; null: the tensor was left out

  explicit operator bool() const {
    return data != nullptr;
  }
  int64_t dim() const {
    return static_cast<int64_t>(sizes.size());
  }
  int64_t count() const {
    int64_t n = 1;
    for (const int64_t size : sizes) n *= size;
    return n;
  }
  double number(int64_t at) const;
  int64_t integer(int64_t at) const;
  void store(int64_t at, double value) const;
  void store_integer(int64_t at, int64_t value) const;
  // With the sizes, by strides of 0.
  view expanded(const std::vector<int64_t>& to) const;
  // All elements, in their order.
  std::vector<double> load() const;
  void save(const std::vector<double>& values) const;
  // Offsets of all elements, in their order.
  std::vector<int64_t> offsets() const;
  int64_t extent_before(int64_t d) const; // the product of the sizes before `d`
  int64_t extent_after(int64_t d) const;
};

inline int64_t wrapped(int64_t d, int64_t ndim) {
  return d < 0 ? d + ndim : d;
}

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

using body = std::function<void(std::vector<view>&)>;

// The first phase: checks descriptors, tells how much workspace the second needs, makes the executor.
int plan(const char* name, uint64_t* workspace_bytes, aclOpExecutor** out_executor, std::vector<operand> operands,
         uint64_t needed_bytes, body run);
int plan(const char* name, uint64_t* workspace_bytes, aclOpExecutor** out_executor, const aclTensorList* list,
         std::vector<operand> operands, uint64_t needed_bytes, body run);
// The second.
int run(const char* name, void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, void* stream);

// Elements of any dtype but the same, one by one.
void move(const view& to, int64_t to_offset, const view& from, int64_t from_offset);

} // namespace sim

// An operator's two functions; the body is the first one's: SIM_OPERATOR(Relu, const aclTensor* self, aclTensor* out) {...}
#define SIM_OPERATOR(NAME, ...)                                                                  \
  SIM_API int aclnn##NAME(void* memory, uint64_t bytes, aclOpExecutor* executor, void* stream) { \
    return sim::run("aclnn" #NAME, memory, bytes, executor, stream);                             \
  }                                                                                              \
  SIM_API int aclnn##NAME##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspace, aclOpExecutor** executor)
