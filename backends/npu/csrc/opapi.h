// CANN's operators (libopapi.so): descriptors of what they take, and the call in two phases.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <vector>

#include "acl.h"
#include "result.h"

namespace npu {

// Descriptors, incomplete as CANN's are.
struct acl_tensor;
struct acl_scalar;
struct acl_int_array;
struct acl_bool_array;
struct acl_tensor_list;
struct acl_executor;

// aclDataType
enum acl_dtype : int {
  kAclFloat = 0,
  kAclFloat16 = 1,
  kAclInt8 = 2,
  kAclInt32 = 3,
  kAclUint8 = 4,
  kAclInt16 = 6,
  kAclInt64 = 9,
  kAclDouble = 11,
  kAclBool = 12,
  kAclBfloat16 = 27,
  kAclNoDtype = -1,
};

acl_dtype acl_dtype_of(tb_dtype dtype);

// X(name, result, parameters)
#define NPU_OPAPI(X)                                                                                     \
  X(aclCreateTensor, acl_tensor*,                                                                        \
    (const int64_t* sizes, uint64_t ndim, int dtype, const int64_t* strides, int64_t offset, int format, \
     const int64_t* storage_sizes, uint64_t storage_ndim, void* data))                                   \
  X(aclDestroyTensor, int, (const acl_tensor*))                                                          \
  X(aclCreateScalar, acl_scalar*, (void* value, int dtype))                                              \
  X(aclDestroyScalar, int, (const acl_scalar*))                                                          \
  X(aclCreateIntArray, acl_int_array*, (const int64_t* values, uint64_t count))                          \
  X(aclDestroyIntArray, int, (const acl_int_array*))                                                     \
  X(aclCreateBoolArray, acl_bool_array*, (const bool* values, uint64_t count))                           \
  X(aclDestroyBoolArray, int, (const acl_bool_array*))                                                   \
  X(aclCreateTensorList, acl_tensor_list*, (const acl_tensor* const* tensors, uint64_t count))           \
  X(aclDestroyTensorList, int, (const acl_tensor_list*))                                                 \
  X(aclDestroyAclOpExecutor, int, (acl_executor*))

struct opapi_functions {
#define NPU_MEMBER(name, returned, parameters) returned(*name) parameters;
  NPU_OPAPI(NPU_MEMBER)
#undef NPU_MEMBER
};

// Null members: there are no operators. Opened at the first call, constant afterwards.
const opapi_functions& opapi();

// A name as a template's argument.
template <size_t N>
struct fixed_string {
  constexpr fixed_string(const char (&text)[N]) {
    std::copy(text, text + N, value);
  }
  char value[N];
};

// aclnn<Name>GetWorkspaceSize and aclnn<Name>; null where CANN does not have the operator.
struct phases {
  void* plan = nullptr;
  void* run = nullptr;
};
phases find_operator(const char* name);

template <fixed_string Name>
const phases& operator_called() {
  static const phases found = find_operator(Name.value);
  return found;
}

// A number as PyTorch has it.
struct number {
  enum { integer, floating, boolean } kind;
  int64_t i;
  double f;
};

// Operators that are enqueued one after the other on one stream, with their descriptors, which live as long as this. After
// the first failure nothing more is done. One thread.
class operator_calls {
 public:
  // With NULL for the context workspaces are taken from the driver, and waited for.
  operator_calls(const tb_kernel_context* context, acl_stream stream) : context_(context), stream_(stream) {}
  ~operator_calls();
  operator_calls(const operator_calls&) = delete;
  operator_calls& operator=(const operator_calls&) = delete;

  acl_tensor* tensor(const tb_tensor& t);
  acl_scalar* scalar(const number& n);
  acl_int_array* ints(const int64_t* values, uint64_t count);
  acl_bool_array* bools(const bool* values, uint64_t count);
  acl_tensor_list* tensors(const std::vector<tb_tensor*>& list);

  // Memory for work on the stream, until the kernel returns; NULL after a failure.
  void* workspace(uint64_t size_bytes);
  // A tensor of the shape in a workspace: contiguous, or one element for all of it.
  tb_tensor temporary(const tb_tensor& like, tb_dtype dtype);
  tb_tensor filled(const tb_tensor& like, tb_dtype dtype, const number& value);

  // Waits for the stream, and copies from the device's memory. Pre: all that was written so far is temporary.
  void read(const void* data, void* out, uint64_t size_bytes);

  template <fixed_string Name, typename... Values>
  void launch(Values... values) {
    if (!failure_.ok()) return;
    const phases& found = operator_called<Name>();
    uint64_t size = 0;
    acl_executor* executor = nullptr;
    const auto plan = reinterpret_cast<int (*)(Values..., uint64_t*, acl_executor**)>(found.plan);
    if (!plan || !found.run) return refuse(Name.value);
    if (const int error = plan(values..., &size, &executor)) return refuse(Name.value, error);
    execute(Name.value, found.run, size, executor);
  }

  // The call is another kernel source's.
  void refuse();
  bool ok() const {
    return failure_.ok();
  }
  const result& outcome() const {
    return failure_;
  }

 private:
  void refuse(const char* name, int error = 0);
  void execute(const char* name, void* run, uint64_t workspace_bytes, acl_executor* executor);
  void fail(result r);

  const tb_kernel_context* context_;
  const acl_stream stream_;
  result failure_;
  bool wrote_ = false; // work that others see has been enqueued
  std::vector<const acl_tensor*> tensors_;
  std::vector<const acl_scalar*> scalars_;
  std::vector<const acl_int_array*> ints_;
  std::vector<const acl_bool_array*> bools_;
  std::vector<const acl_tensor_list*> lists_;
  std::vector<void*> borrowed_;               // from the driver
  std::vector<std::vector<int64_t>> strides_; // of temporary tensors
};

// For copies and fills that AscendCL itself has not.
bool has_copy_operator();
result copy_bytes(int32_t device, void* dst, const void* src, uint64_t size_bytes, acl_stream stream);
// UNSUPPORTED for patterns of 16 bytes, and without operators.
result fill_elements(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                     acl_stream stream);

} // namespace npu
