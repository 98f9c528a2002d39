// Descriptors, executors, and the two phases.
#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "operator.h"

namespace sim {
namespace {

std::mutex mutex; // guards what is alive
std::set<const void*>& alive() {
  static auto& all = *new std::set<const void*>;
  return all;
}

const leftovers at_the_end{"descriptors and executors", [] { return alive().size(); }};

template <typename T>
T* born(T* made) {
  const std::lock_guard<std::mutex> lock(mutex);
  alive().insert(made);
  return made;
}

bool is_alive(const void* object) {
  const std::lock_guard<std::mutex> lock(mutex);
  return alive().count(object) != 0;
}

template <typename T>
int destroy(const char* name, const T* object) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (alive().erase(object) == 0) return refuse(kInvalidParameter, "%s: there is none, or no longer", name);
  }
  delete object;
  return kOk;
}

} // namespace

at::ScalarType scalar_type_of(int acl_dtype) {
  switch (acl_dtype) {
    case 0:
      return at::kFloat;
    case 1:
      return at::kHalf;
    case 2:
      return at::kChar;
    case 3:
      return at::kInt;
    case 4:
      return at::kByte;
    case 6:
      return at::kShort;
    case 9:
      return at::kLong;
    case 11:
      return at::kDouble;
    case 12:
      return at::kBool;
    case 27:
      return at::kBFloat16;
    default:
      return at::ScalarType::Undefined;
  }
}

void write(const at::Tensor& out, const at::Tensor& result) {
  if (!out.defined()) return;
  TORCH_CHECK(out.sizes() == result.sizes(), "a result of ", result.sizes(), " in a tensor of ", out.sizes());
  TORCH_CHECK(at::can_cast(result.scalar_type(), out.scalar_type()), result.scalar_type(), " does not become ",
              out.scalar_type());
  out.copy_(result);
}

} // namespace sim

using namespace sim;

struct aclOpExecutor {
  std::string name;
  std::vector<const aclTensor*> tensors; // null: left out
  uint64_t workspace_bytes;
  body run;
};

SIM_API aclTensor* aclCreateTensor(const int64_t* sizes, uint64_t ndim, int dtype, const int64_t* strides,
                                   int64_t offset, int format, const int64_t* storage, uint64_t storage_ndim,
                                   void* data) {
  const int expected = ndim == 3 ? 47 : ndim == 4 ? 0 : ndim == 5 ? 30 : 2;
  const at::ScalarType type = scalar_type_of(dtype);
  if (type == at::ScalarType::Undefined || offset < 0 || format != expected) {
    refuse(kInvalidParameter, "aclCreateTensor: dtype %d, offset %ld, format %d of %lu dimensions", dtype, long(offset),
           format, (unsigned long)ndim);
    return nullptr;
  }
  int64_t room = 1, last = offset;
  for (uint64_t i = 0; i < storage_ndim; ++i) room *= storage[i];
  for (uint64_t i = 0; i < ndim; ++i) last += (sizes[i] - 1) * strides[i];
  if (last >= room || reinterpret_cast<uintptr_t>(data) % at::elementSize(type) != 0) {
    refuse(kInvalidParameter, "aclCreateTensor: element %ld of a storage of %ld, at %p", long(last), long(room), data);
    return nullptr;
  }
  return born(new aclTensor{{sizes, sizes + ndim}, {strides, strides + ndim}, offset, type, static_cast<char*>(data)});
}

SIM_API aclScalar* aclCreateScalar(void* value, int dtype) {
  switch (scalar_type_of(dtype)) {
    case at::kDouble:
      return born(new aclScalar(*static_cast<double*>(value)));
    case at::kFloat:
      return born(new aclScalar(*static_cast<float*>(value)));
    case at::kLong:
      return born(new aclScalar(*static_cast<int64_t*>(value)));
    case at::kBool:
      return born(new aclScalar(*static_cast<bool*>(value)));
    default:
      refuse(kInvalidParameter, "aclCreateScalar: dtype %d is not simulated", dtype);
      return nullptr;
  }
}

SIM_API aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return born(new aclIntArray(values, values + count));
}
SIM_API aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
  return born(new aclBoolArray(values, values + count));
}
SIM_API aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t count) {
  return born(new aclTensorList(tensors, tensors + count));
}
SIM_API int aclDestroyTensor(const aclTensor* t) {
  return destroy("aclDestroyTensor", t);
}
SIM_API int aclDestroyScalar(const aclScalar* s) {
  return destroy("aclDestroyScalar", s);
}
SIM_API int aclDestroyIntArray(const aclIntArray* a) {
  return destroy("aclDestroyIntArray", a);
}
SIM_API int aclDestroyBoolArray(const aclBoolArray* a) {
  return destroy("aclDestroyBoolArray", a);
}
SIM_API int aclDestroyTensorList(const aclTensorList* list) {
  if (is_alive(list))
    for (const aclTensor* t : *list) destroy("aclDestroyTensorList", t);
  return destroy("aclDestroyTensorList", list);
}
SIM_API int aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return destroy("aclDestroyAclOpExecutor", executor);
}

// For tests: how many descriptors and executors there are.
SIM_API int64_t aclSimLiveObjects() {
  const std::lock_guard<std::mutex> lock(mutex);
  return static_cast<int64_t>(alive().size());
}

namespace sim {
namespace {

// Everything that the command touches, as the storage has it.
bool find_tensor(const aclTensor& t, const device* of, at::Tensor* out_tensor) {
  int64_t last = t.offset;
  for (size_t i = 0; i < t.sizes.size(); ++i) last += (t.sizes[i] - 1) * t.strides[i];
  const auto bytes = static_cast<int64_t>(at::elementSize(t.dtype));
  device* owner = nullptr;
  char* base = find_memory(t.data, static_cast<uint64_t>((last + 1) * bytes), &owner);
  if (!base || owner != of) return false;
  *out_tensor = at::from_blob(base + t.offset * bytes, t.sizes, t.strides, at::TensorOptions(t.dtype));
  return true;
}

} // namespace

int plan(const char* name, uint64_t* workspace_bytes, aclOpExecutor** out_executor, std::vector<operand> operands,
         uint64_t needed_bytes, body run, const aclTensorList* list) {
  if (const int error = enter(name)) return error;
  if (!workspace_bytes || !out_executor) return refuse(kNullParameter, "%s: nowhere to put the answer", name);
  if (list && !is_alive(list)) return refuse(kInvalidParameter, "%s: a list that is gone", name);
  std::vector<const aclTensor*> all;
  if (list) all = *list;
  for (const operand& o : operands) {
    if (!o.tensor && !o.optional) return refuse(kNullParameter, "%s: a tensor is NULL", name);
    all.push_back(o.tensor);
  }
  for (const aclTensor* t : all) {
    if (t && !is_alive(t)) return refuse(kInvalidParameter, "%s: a tensor that is gone", name);
    if (t && t->sizes.size() > 8) return refuse(kInvalidParameter, "%s: more than 8 dimensions", name);
  }
  *workspace_bytes = needed_bytes;
  *out_executor = born(new aclOpExecutor{name, std::move(all), needed_bytes, std::move(run)});
  return kOk;
}

int run(const char* name, void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, void* handle) {
  if (!is_alive(executor)) return refuse(kInvalidParameter, "%s: the executor was used before, or there is none", name);
  if (executor->name != name)
    return refuse(kInvalidParameter, "%s with the executor of %s", name, executor->name.c_str());
  if (const int error = enter(name)) return error;
  stream* s = nullptr;
  if (const int error = find_stream(name, handle, &s)) return error;
  for (const aclTensor* t : executor->tensors)
    if (t && !is_alive(t)) return refuse(kInvalidParameter, "%s: a tensor was destroyed before the call", name);
  if (workspace_bytes < executor->workspace_bytes || (executor->workspace_bytes && !workspace))
    return refuse(kInvalidParameter, "%s: %lu bytes of workspace, and %lu are needed", name,
                  (unsigned long)workspace_bytes, (unsigned long)executor->workspace_bytes);
  std::vector<std::optional<aclTensor>> operands; // copies: the descriptors may go after this call
  for (const aclTensor* t : executor->tensors) operands.push_back(t ? std::optional(*t) : std::nullopt);
  enqueue(s, [=, needed = executor->workspace_bytes, work = std::move(executor->run)] {
    device* owner = nullptr;
    char* own = needed ? find_memory(workspace, needed, &owner) : nullptr;
    if (needed && owner != s->owner)
      return refuse(kKernelFailed, "%s: the workspace is not memory of the device", name);
    tensors found(operands.size());
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] && !find_tensor(*operands[i], s->owner, &found[i]))
        return refuse(kKernelFailed, "%s: tensor %zu is not in one allocation of the device", name, i);
    return compute(name, kKernelFailed, own, needed, work, found);
  });
  return destroy(name, executor);
}

} // namespace sim
