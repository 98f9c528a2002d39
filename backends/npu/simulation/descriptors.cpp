// Descriptors, executors, and access to elements.
#include <algorithm>
#include <cstring>
#include <set>

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

float from_half(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return static_cast<float>(value);
}

uint16_t to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T>
T get(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void put(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

} // namespace

int64_t item_bytes(int dtype) {
  switch (dtype) {
    case kInt8:
    case kUint8:
    case kBool:
      return 1;
    case kHalf:
    case kBfloat16:
    case kInt16:
      return 2;
    case kFloat:
    case kInt32:
      return 4;
    case kInt64:
    case kDouble:
      return 8;
    default:
      return 0;
  }
}

bool is_floating(int dtype) {
  return dtype == kFloat || dtype == kHalf || dtype == kBfloat16 || dtype == kDouble;
}

double view::number(int64_t at) const {
  const char* p = data + at * item_bytes(dtype);
  switch (dtype) {
    case kFloat:
      return get<float>(p);
    case kDouble:
      return get<double>(p);
    case kHalf:
      return from_half(get<uint16_t>(p));
    case kBfloat16: {
      const uint32_t bits = uint32_t{get<uint16_t>(p)} << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      return value;
    }
    default:
      return static_cast<double>(integer(at));
  }
}

int64_t view::integer(int64_t at) const {
  const char* p = data + at * item_bytes(dtype);
  switch (dtype) {
    case kInt8:
      return get<int8_t>(p);
    case kUint8:
      return get<uint8_t>(p);
    case kBool:
      return get<uint8_t>(p) != 0;
    case kInt16:
      return get<int16_t>(p);
    case kInt32:
      return get<int32_t>(p);
    case kInt64:
      return get<int64_t>(p);
    default:
      return static_cast<int64_t>(number(at));
  }
}

void view::store(int64_t at, double value) const {
  char* p = data + at * item_bytes(dtype);
  switch (dtype) {
    case kFloat:
      return put(p, static_cast<float>(value));
    case kDouble:
      return put(p, value);
    case kHalf: {
      const auto half = static_cast<_Float16>(value);
      return put(p, half);
    }
    case kBfloat16:
      return put(p, to_bfloat16(static_cast<float>(value)));
    case kBool:
      return put(p, static_cast<uint8_t>(value != 0));
    default:
      return store_integer(at, static_cast<int64_t>(value));
  }
}

void view::store_integer(int64_t at, int64_t value) const {
  char* p = data + at * item_bytes(dtype);
  switch (dtype) {
    case kInt8:
    case kUint8:
      return put(p, static_cast<uint8_t>(value));
    case kBool:
      return put(p, static_cast<uint8_t>(value != 0));
    case kInt16:
      return put(p, static_cast<int16_t>(value));
    case kInt32:
      return put(p, static_cast<int32_t>(value));
    case kInt64:
      return put(p, value);
    default:
      return store(at, static_cast<double>(value));
  }
}

view view::expanded(const std::vector<int64_t>& to) const {
  view v = *this;
  v.sizes = to;
  v.strides.assign(to.size(), 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t there = to.size() - sizes.size() + i;
    if (sizes[i] == to[there]) v.strides[there] = strides[i];
  }
  return v;
}

std::vector<int64_t> view::offsets() const {
  std::vector<int64_t> all;
  all.reserve(static_cast<size_t>(count()));
  all.push_back(0);
  for (size_t d = 0; d < sizes.size(); ++d) {
    std::vector<int64_t> next;
    next.reserve(all.size() * static_cast<size_t>(sizes[d]));
    for (const int64_t start : all)
      for (int64_t i = 0; i < sizes[d]; ++i) next.push_back(start + i * strides[d]);
    all = std::move(next);
  }
  return all;
}

std::vector<double> view::load() const {
  std::vector<double> values;
  for (const int64_t at : offsets()) values.push_back(number(at));
  return values;
}

void view::save(const std::vector<double>& values) const {
  size_t next = 0;
  for (const int64_t at : offsets()) store(at, values[next++]);
}

int64_t view::extent_before(int64_t d) const {
  int64_t n = 1;
  for (int64_t i = 0; i < d; ++i) n *= sizes[static_cast<size_t>(i)];
  return n;
}

int64_t view::extent_after(int64_t d) const {
  int64_t n = 1;
  for (int64_t i = d + 1; i < dim(); ++i) n *= sizes[static_cast<size_t>(i)];
  return n;
}

void move(const view& to, int64_t to_offset, const view& from, int64_t from_offset) {
  const auto bytes = static_cast<size_t>(item_bytes(to.dtype));
  std::memcpy(to.data + to_offset * static_cast<int64_t>(bytes), from.data + from_offset * static_cast<int64_t>(bytes),
              bytes);
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
  if (item_bytes(dtype) == 0 || offset < 0 || format != expected) {
    refuse(kInvalidParameter, "aclCreateTensor: dtype %d, offset %ld, format %d of %lu dimensions", dtype, long(offset),
           format, (unsigned long)ndim);
    return nullptr;
  }
  int64_t room = 1, last = offset;
  for (uint64_t i = 0; i < storage_ndim; ++i) room *= storage[i];
  for (uint64_t i = 0; i < ndim; ++i) last += (sizes[i] - 1) * strides[i];
  if (last >= room || reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(item_bytes(dtype)) != 0) {
    refuse(kInvalidParameter, "aclCreateTensor: element %ld of a storage of %ld, at %p", long(last), long(room), data);
    return nullptr;
  }
  return born(
      new aclTensor{{sizes, sizes + ndim}, {strides, strides + ndim}, offset, dtype, format, static_cast<char*>(data)});
}

SIM_API aclScalar* aclCreateScalar(void* value, int dtype) {
  aclScalar s{dtype, 0, 0};
  if (dtype == kDouble) s.f = *static_cast<double*>(value), s.i = static_cast<int64_t>(s.f);
  if (dtype == kFloat) s.f = *static_cast<float*>(value), s.i = static_cast<int64_t>(s.f);
  if (dtype == kInt64) s.i = *static_cast<int64_t*>(value), s.f = static_cast<double>(s.i);
  if (dtype == kBool) s.i = *static_cast<bool*>(value), s.f = static_cast<double>(s.i);
  return born(new aclScalar(s));
}

SIM_API aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return born(new aclIntArray{{values, values + count}});
}
SIM_API aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
  return born(new aclBoolArray{std::vector<bool>(values, values + count)});
}
SIM_API aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t count) {
  return born(new aclTensorList{{tensors, tensors + count}});
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
    for (const aclTensor* t : list->tensors) destroy("aclDestroyTensorList", t);
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
bool find_view(const aclTensor& t, const device* of, view* out_view) {
  int64_t last = t.offset;
  for (size_t i = 0; i < t.sizes.size(); ++i) last += (t.sizes[i] - 1) * t.strides[i];
  const int64_t bytes = item_bytes(t.dtype);
  device* owner = nullptr;
  char* base = find_memory(t.data, static_cast<uint64_t>((last + 1) * bytes), &owner);
  if (!base || owner != of) return false;
  *out_view = {t.sizes, t.strides, t.dtype, base + t.offset * bytes};
  return true;
}

} // namespace

int plan(const char* name, uint64_t* workspace_bytes, aclOpExecutor** out_executor, const aclTensorList* list,
         std::vector<operand> operands, uint64_t needed_bytes, body run) {
  if (const int error = enter(name)) return error;
  if (!workspace_bytes || !out_executor) return refuse(kNullParameter, "%s: nowhere to put the answer", name);
  if (list && !is_alive(list)) return refuse(kInvalidParameter, "%s: a list that is gone", name);
  std::vector<const aclTensor*> tensors;
  if (list) tensors = list->tensors;
  for (const operand& o : operands) {
    if (!o.tensor && !o.optional) return refuse(kNullParameter, "%s: a tensor is NULL", name);
    tensors.push_back(o.tensor);
  }
  for (const aclTensor* t : tensors) {
    if (t && !is_alive(t)) return refuse(kInvalidParameter, "%s: a tensor that is gone", name);
    if (t && t->sizes.size() > 8) return refuse(kInvalidParameter, "%s: more than 8 dimensions", name);
  }
  *workspace_bytes = needed_bytes;
  *out_executor = born(new aclOpExecutor{name, std::move(tensors), needed_bytes, std::move(run)});
  return kOk;
}

int plan(const char* name, uint64_t* workspace_bytes, aclOpExecutor** out_executor, std::vector<operand> operands,
         uint64_t needed_bytes, body run) {
  return plan(name, workspace_bytes, out_executor, nullptr, std::move(operands), needed_bytes, std::move(run));
}

int run(const char* name, void* workspace, uint64_t workspace_bytes, aclOpExecutor* executor, void* handle) {
  if (!is_alive(executor)) return refuse(kInvalidParameter, "%s: the executor was used before, or there is none", name);
  if (std::string(executor->name) != name)
    return refuse(kInvalidParameter, "%s with the executor of %s", name, executor->name.c_str());
  if (const int error = enter(name)) return error;
  stream* s = nullptr;
  if (const int error = find_stream(name, handle, &s)) return error;
  for (const aclTensor* t : executor->tensors)
    if (t && !is_alive(t)) return refuse(kInvalidParameter, "%s: a tensor was destroyed before the call", name);
  if (workspace_bytes < executor->workspace_bytes || (executor->workspace_bytes && !workspace))
    return refuse(kInvalidParameter, "%s: %lu bytes of workspace, and %lu are needed", name,
                  (unsigned long)workspace_bytes, (unsigned long)executor->workspace_bytes);
  std::vector<aclTensor> tensors; // copies: the descriptors may go after this call
  std::vector<bool> present;
  for (const aclTensor* t : executor->tensors) {
    tensors.push_back(t ? *t : aclTensor{});
    present.push_back(t != nullptr);
  }
  const uint64_t needed = executor->workspace_bytes;
  const std::string text = name;
  enqueue(s, [=, work = std::move(executor->run)] {
    device* owner = nullptr;
    char* own = needed ? find_memory(workspace, needed, &owner) : nullptr;
    if (needed && owner != s->owner)
      return refuse(kKernelFailed, "%s: the workspace is not memory of the device", text.c_str());
    if (own) std::memset(own, 0x5A, needed);
    std::vector<view> views(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i)
      if (present[i] && !find_view(tensors[i], s->owner, &views[i]))
        return refuse(kKernelFailed, "%s: tensor %zu is not in one allocation of the device", text.c_str(), i);
    work(views);
    if (own && std::any_of(own, own + needed, [](char c) { return c != 0x5A; }))
      return refuse(kKernelFailed, "%s: somebody else wrote the workspace", text.c_str());
    return kOk;
  });
  return destroy(name, executor);
}

} // namespace sim
