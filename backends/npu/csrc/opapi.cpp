#include "opapi.h"

#include <dlfcn.h>

#include <cstring>

namespace npu {
namespace {

// aclFormat, which operators on images look at.
int format_of(int32_t ndim) {
  switch (ndim) {
    case 3:
      return 47; // NCL
    case 4:
      return 0; // NCHW
    case 5:
      return 30; // NCDHW
    default:
      return 2; // ND
  }
}

void* symbol(const char* name) {
  // Operators of the user's own come first.
  static void* const libraries[] = {open_library("libcust_opapi.so"), open_library("libopapi.so")};
  for (void* library : libraries)
    if (void* found = library ? dlsym(library, name) : nullptr) return found;
  return nullptr;
}

// From the base of the storage to behind the last element.
int64_t extent(const tb_tensor& t, int64_t offset) {
  for (int32_t i = 0; i < t.ndim; ++i) offset += (t.shape[i] - 1) * t.strides[i];
  return offset + 1;
}

} // namespace

acl_dtype acl_dtype_of(tb_dtype dtype) {
  if (dtype.lanes != 1) return kAclNoDtype;
  switch (dtype.code << 8 | dtype.bits) {
    case TB_DTYPE_FLOAT << 8 | 16:
      return kAclFloat16;
    case TB_DTYPE_FLOAT << 8 | 32:
      return kAclFloat;
    case TB_DTYPE_FLOAT << 8 | 64:
      return kAclDouble;
    case TB_DTYPE_BFLOAT << 8 | 16:
      return kAclBfloat16;
    case TB_DTYPE_INT << 8 | 8:
      return kAclInt8;
    case TB_DTYPE_INT << 8 | 16:
      return kAclInt16;
    case TB_DTYPE_INT << 8 | 32:
      return kAclInt32;
    case TB_DTYPE_INT << 8 | 64:
      return kAclInt64;
    case TB_DTYPE_UINT << 8 | 8:
      return kAclUint8;
    case TB_DTYPE_BOOL << 8 | 8:
      return kAclBool;
    default:
      return kAclNoDtype;
  }
}

const opapi_functions& opapi() {
  static const opapi_functions found = [] {
    opapi_functions f{};
#define NPU_LOAD(name, returned, parameters) f.name = reinterpret_cast<decltype(f.name)>(symbol(#name));
    NPU_OPAPI(NPU_LOAD)
#undef NPU_LOAD
    return f.aclCreateTensor && f.aclDestroyTensor ? f : opapi_functions{};
  }();
  return found;
}

phases find_operator(const char* name) {
  if (!opapi().aclCreateTensor) return {};
  const std::string run = std::string("aclnn") + name;
  return {symbol((run + "GetWorkspaceSize").c_str()), symbol(run.c_str())};
}

operator_calls::~operator_calls() {
  for (const auto* t : tensors_) opapi().aclDestroyTensor(t);
  for (const auto* s : scalars_) opapi().aclDestroyScalar(s);
  for (const auto* a : ints_) opapi().aclDestroyIntArray(a);
  for (const auto* a : bools_) opapi().aclDestroyBoolArray(a);
  for (const auto* l : lists_) opapi().aclDestroyTensorList(l); // and its tensors
  if (!borrowed_.empty()) acl.aclrtSynchronizeStream(stream_);
  for (void* ptr : borrowed_) acl.aclrtFree(ptr);
}

void operator_calls::fail(result r) {
  if (failure_.ok()) failure_ = std::move(r);
}

void operator_calls::refuse() {
  fail({TB_STATUS_UNSUPPORTED, ""});
}

void operator_calls::refuse(const char* name, int error) {
  // Nothing was written yet: the next kernel source can take the call, and the log tells why.
  result r = error ? check(error, (std::string("aclnn") + name + "GetWorkspaceSize").c_str())
                   : failure(TB_STATUS_UNSUPPORTED, "this CANN has no aclnn%s", name);
  if (r.status == TB_STATUS_INTERNAL && !wrote_) {
    host().log(TB_LOG_DEBUG, r.text.c_str());
    r.status = TB_STATUS_UNSUPPORTED;
  }
  fail(std::move(r));
}

namespace {

acl_tensor* create(const tb_tensor& t) {
  const acl_dtype dtype = acl_dtype_of(t.dtype);
  const int64_t item_bytes = t.dtype.bits / 8;
  const bool divides = t.byte_offset % static_cast<uint64_t>(item_bytes) == 0;
  const int64_t offset = divides ? static_cast<int64_t>(t.byte_offset) / item_bytes : 0;
  void* data = divides ? t.data : static_cast<char*>(t.data) + t.byte_offset;
  const int64_t storage = extent(t, offset);
  return opapi().aclCreateTensor(t.shape, static_cast<uint64_t>(t.ndim), dtype, t.strides, offset, format_of(t.ndim),
                                 &storage, 1, data);
}

} // namespace

acl_tensor* operator_calls::tensor(const tb_tensor& t) {
  if (acl_dtype_of(t.dtype) == kAclNoDtype) refuse();
  if (!ok()) return nullptr;
  acl_tensor* created = create(t);
  if (created) tensors_.push_back(created);
  if (!created) fail(failure(TB_STATUS_OUT_OF_MEMORY, "aclCreateTensor: the host is out of memory"));
  return created;
}

acl_scalar* operator_calls::scalar(const number& n) {
  if (!ok()) return nullptr;
  number copy = n;
  bool truth = n.i != 0;
  void* value = n.kind == number::floating  ? static_cast<void*>(&copy.f)
                : n.kind == number::boolean ? &truth
                                            : static_cast<void*>(&copy.i);
  const int dtype = n.kind == number::floating ? kAclDouble : n.kind == number::boolean ? kAclBool : kAclInt64;
  scalars_.push_back(opapi().aclCreateScalar(value, dtype));
  return const_cast<acl_scalar*>(scalars_.back());
}

acl_int_array* operator_calls::ints(const int64_t* values, uint64_t count) {
  if (!ok()) return nullptr;
  ints_.push_back(opapi().aclCreateIntArray(values, count));
  return const_cast<acl_int_array*>(ints_.back());
}

acl_bool_array* operator_calls::bools(const bool* values, uint64_t count) {
  if (!ok()) return nullptr;
  bools_.push_back(opapi().aclCreateBoolArray(values, count));
  return const_cast<acl_bool_array*>(bools_.back());
}

acl_tensor_list* operator_calls::tensors(const std::vector<tb_tensor*>& list) {
  for (const tb_tensor* t : list)
    if (!t || acl_dtype_of(t->dtype) == kAclNoDtype) refuse();
  if (!ok()) return nullptr;
  std::vector<const acl_tensor*> created;
  for (const tb_tensor* t : list) created.push_back(create(*t));
  lists_.push_back(opapi().aclCreateTensorList(created.data(), created.size()));
  return const_cast<acl_tensor_list*>(lists_.back());
}

void* operator_calls::workspace(uint64_t size_bytes) {
  void* ptr = nullptr;
  if (!ok()) return nullptr;
  if (context_) {
    // The text of a failure is the core's own.
    if (const tb_status status = host().alloc_workspace(context_, size_bytes, &ptr)) fail({status, ""});
    return ptr;
  }
  fail(check(acl.aclrtMallocAlign32(&ptr, size_bytes, kAclHugeFirst), "aclrtMallocAlign32"));
  if (ok()) borrowed_.push_back(ptr);
  return ptr;
}

tb_tensor operator_calls::temporary(const tb_tensor& like, tb_dtype dtype) {
  std::vector<int64_t>& strides = strides_.emplace_back(static_cast<size_t>(like.ndim));
  int64_t count = 1;
  for (int32_t i = like.ndim - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = count;
    count *= like.shape[i];
  }
  void* data = workspace(static_cast<uint64_t>(count) * dtype.bits / 8);
  return {data, like.device, like.ndim, dtype, like.shape, strides.data(), 0};
}

tb_tensor operator_calls::filled(const tb_tensor& like, tb_dtype dtype, const number& value) {
  const bool wrote = wrote_;
  tb_tensor one{workspace(dtype.bits / 8), like.device, 0, dtype, nullptr, nullptr, 0};
  launch<"InplaceFillScalar">(tensor(one), scalar(value));
  wrote_ = wrote; // nobody else sees it
  std::vector<int64_t>& strides = strides_.emplace_back(static_cast<size_t>(like.ndim), 0);
  return {one.data, like.device, like.ndim, dtype, like.shape, strides.data(), 0};
}

void operator_calls::read(const void* data, void* out, uint64_t size_bytes) {
  if (ok()) fail(check(acl.aclrtSynchronizeStream(stream_), "aclrtSynchronizeStream"));
  if (ok()) fail(check(acl.aclrtMemcpy(out, size_bytes, data, size_bytes, kAclDeviceToHost), "aclrtMemcpy"));
  wrote_ = false;
}

void operator_calls::execute(const char* name, void* run, uint64_t workspace_bytes, acl_executor* executor) {
  void* memory = workspace_bytes ? workspace(workspace_bytes) : nullptr;
  if (!ok()) {
    if (opapi().aclDestroyAclOpExecutor) opapi().aclDestroyAclOpExecutor(executor);
    return;
  }
  const auto enqueue = reinterpret_cast<int (*)(void*, uint64_t, acl_executor*, acl_stream)>(run);
  fail(check(enqueue(memory, workspace_bytes, executor, stream_), (std::string("aclnn") + name).c_str()));
  wrote_ = true;
}

// ---- copies and fills ----

namespace {

// One row of elements.
struct row {
  row(int32_t device, const void* data, tb_dtype dtype, int64_t count)
      : size(count), tensor{const_cast<void*>(data), {12, device}, 1, dtype, &size, &stride, 0} {}
  row(const row&) = delete;
  int64_t size, stride = 1;
  tb_tensor tensor;
};

} // namespace

bool has_copy_operator() {
  return operator_called<"InplaceCopy">().run != nullptr;
}

result copy_bytes(int32_t device, void* dst, const void* src, uint64_t size_bytes, acl_stream stream) {
  constexpr tb_dtype byte{TB_DTYPE_UINT, 8, 1};
  const row to(device, dst, byte, static_cast<int64_t>(size_bytes)), from(device, src, byte, to.size);
  operator_calls calls(nullptr, stream);
  calls.launch<"InplaceCopy">(calls.tensor(to.tensor), calls.tensor(from.tensor));
  return calls.outcome();
}

result fill_elements(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                     acl_stream stream) {
  if (pattern_bytes > 8 || !operator_called<"InplaceFillScalar">().run) return {TB_STATUS_UNSUPPORTED, ""};
  number value{number::integer, 0, 0};
  std::memcpy(&value.i, pattern, pattern_bytes); // the lower bytes, sign or not
  if (pattern_bytes < 8) value.i = value.i << (64 - 8 * pattern_bytes) >> (64 - 8 * pattern_bytes);
  const row to(device, dst, {TB_DTYPE_INT, static_cast<uint8_t>(8 * pattern_bytes), 1},
               static_cast<int64_t>(size_bytes / pattern_bytes));
  operator_calls calls(nullptr, stream);
  calls.launch<"InplaceFillScalar">(calls.tensor(to.tensor), calls.scalar(value));
  return calls.outcome();
}

} // namespace npu
