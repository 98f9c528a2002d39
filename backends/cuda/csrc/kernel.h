// What the plugin's own kernels have in common.
#pragma once

#include <map>
#include <memory>

#include "common/boundary.h"
#include "result.h"

namespace xcuda {

// For the next kernel source.
inline result refuse() {
  return {TB_STATUS_UNSUPPORTED, ""};
}

inline const tb_tensor& tensor_of(const tb_arg& arg) {
  return *static_cast<const tb_tensor*>(arg.v.p);
}

inline const char* data_of(const tb_tensor& t) {
  return static_cast<char*>(t.data) + t.byte_offset;
}

constexpr int kNone = -1;

// What a library calls a dtype that its kernels are for; kNone for others.
struct library_dtypes {
  int of_float16, of_bfloat16, of_float32, of_float64;

  constexpr int operator()(tb_dtype dtype) const {
    switch (dtype.code << 8 | dtype.bits) {
      case TB_DTYPE_FLOAT << 8 | 16:
        return of_float16;
      case TB_DTYPE_BFLOAT << 8 | 16:
        return of_bfloat16;
      case TB_DTYPE_FLOAT << 8 | 32:
        return of_float32;
      case TB_DTYPE_FLOAT << 8 | 64:
        return of_float64;
      default:
        return kNone;
    }
  }
};

// Of device memory from the core's cache. The text of a failure is the core's own.
inline result allocate_workspace(const tb_kernel_context& context, uint64_t size_bytes, void** out_workspace) {
  return {size_bytes ? host().alloc_workspace(&context, size_bytes, out_workspace) : TB_STATUS_OK, ""};
}

// One and other factors as libraries want them.
struct factor {
  double as_double;
  float as_float;
  bool is_double;

  factor(double value, bool is_double) : as_double(value), as_float(static_cast<float>(value)), is_double(is_double) {}
  const void* pointer() const {
    return is_double ? static_cast<const void*>(&as_double) : &as_float;
  }
};

// The thread's plan for a problem, which is all that one depends on; `make` makes a new one. What cannot be planned is not
// tried again.
template <typename Plan, typename Problem, typename Make>
result find_plan(const Problem& wanted, std::shared_ptr<Plan>* out_plan, Make make) {
  constexpr size_t kMaxPlans = 1024; // shapes may change all the time
  static thread_local std::map<Problem, std::shared_ptr<Plan>> plans;
  auto found = plans.find(wanted);
  if (found == plans.end()) {
    if (plans.size() >= kMaxPlans) plans.clear();
    auto made = std::make_shared<Plan>();
    result r = make(*made);
    if (!r.ok() && r.status != TB_STATUS_UNSUPPORTED) return r;
    found = plans.emplace(wanted, r.ok() ? std::move(made) : nullptr).first;
  }
  *out_plan = found->second;
  return *out_plan ? result() : refuse();
}

// Of float16, bfloat16, float32 and float64.
template <result (*Function)(const tb_kernel_context*, const tb_arg*, int32_t)>
tb_kernel kernel(const char* op) {
  static constexpr uint64_t kDtypes[TB_DTYPE_MASK_WORDS] = {
      TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 16) | TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32) |
      TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 64) | TB_DTYPE_MASK_FLAG(TB_DTYPE_BFLOAT, 16)};
  return {sizeof(tb_kernel), op, boundary<Function>::call, TB_KERNEL_MATH_FLAGS, 0, kDtypes};
}

} // namespace xcuda
