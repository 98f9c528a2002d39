// The simulated libcudnn's graphs, of one operation: softmax(scale * q k^T) v, computed row by row in float. And the rules
// of what describes them: descriptors, their attributes, engines, plans, and what they are run on.
#include <algorithm>
#include <array>
#include <cmath>

#include "dnn.h"

namespace sim {
namespace {

constexpr int kFirstWithSdpa = 91301;
constexpr int kVersion = 92000;

struct attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<char> bytes;
};

struct backend_descriptor {
  int type = 0;
  bool is_final = false;
  int engine = 0; // of an engine, or a configuration of one
  std::map<int, attribute> set;

  template <typename T>
  std::vector<T> list(int name) const {
    const auto found = set.find(name);
    if (found == set.end()) return {};
    std::vector<T> all(static_cast<size_t>(found->second.count));
    std::memcpy(all.data(), found->second.bytes.data(), all.size() * sizeof(T));
    return all;
  }
  template <typename T>
  T one(int name) const {
    T value{};
    const auto found = set.find(name);
    if (found != set.end()) std::memcpy(&value, found->second.bytes.data(), sizeof value);
    return value;
  }
};

using registered = registry<backend_descriptor>;

// What an engine is, and in which order the heuristics name them: one that does not serve after all, one that wants more
// than there is, one whose sums are in any order, and one that needs nothing.
enum engine { kRefused, kGreedy, kFast, kPlain };
constexpr int kEngines = 4;
constexpr int64_t kWorkspaceOf[kEngines] = {0, int64_t{1} << 40, 1 << 12, 0};

// ---- attributes ----

struct rule {
  int desc, name, type;
  int64_t least, most;
  bool is_needed;
  int of = 0; // what a descriptor has to be
};

constexpr int kTensor = kCUDNN_BACKEND_TENSOR_DESCRIPTOR, kOperation = kCUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
              kGraph = kCUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, kHeuristics = kCUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
              kConfig = kCUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kEngine = kCUDNN_BACKEND_ENGINE_DESCRIPTOR,
              kPlan = kCUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, kPack = kCUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr int kDescriptor = kCUDNN_TYPE_BACKEND_DESCRIPTOR;

constexpr rule kRules[] = {
    {kTensor, kCUDNN_ATTR_TENSOR_UNIQUE_ID, kCUDNN_TYPE_INT64, 1, 1, true},
    {kTensor, kCUDNN_ATTR_TENSOR_DATA_TYPE, kCUDNN_TYPE_DATA_TYPE, 1, 1, true},
    {kTensor, kCUDNN_ATTR_TENSOR_DIMENSIONS, kCUDNN_TYPE_INT64, 1, 8, true},
    {kTensor, kCUDNN_ATTR_TENSOR_STRIDES, kCUDNN_TYPE_INT64, 1, 8, true},
    {kTensor, kCUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kCUDNN_TYPE_INT64, 1, 1, true},
    {kTensor, kCUDNN_ATTR_TENSOR_IS_BY_VALUE, kCUDNN_TYPE_BOOLEAN, 1, 1, false},
    {kOperation, kCUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, kDescriptor, 1, 1, true, kTensor},
    {kOperation, kCUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, kDescriptor, 1, 1, true, kTensor},
    {kOperation, kCUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, kDescriptor, 1, 1, true, kTensor},
    {kOperation, kCUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, kDescriptor, 1, 1, true, kTensor},
    {kOperation, kCUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, kDescriptor, 1, 1, false, kTensor},
    {kGraph, kCUDNN_ATTR_OPERATIONGRAPH_HANDLE, kCUDNN_TYPE_HANDLE, 1, 1, true},
    {kGraph, kCUDNN_ATTR_OPERATIONGRAPH_OPS, kDescriptor, 1, 1, true, kOperation},
    {kHeuristics, kCUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kDescriptor, 1, 1, true, kGraph},
    {kHeuristics, kCUDNN_ATTR_ENGINEHEUR_MODE, kCUDNN_TYPE_HEUR_MODE, 1, 1, true},
    {kPlan, kCUDNN_ATTR_EXECUTION_PLAN_HANDLE, kCUDNN_TYPE_HANDLE, 1, 1, true},
    {kPlan, kCUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kDescriptor, 1, 1, true, kConfig},
    {kPack, kCUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kCUDNN_TYPE_INT64, 1, 64, true},
    {kPack, kCUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, kCUDNN_TYPE_VOID_PTR, 1, 64, true},
    {kPack, kCUDNN_ATTR_VARIANT_PACK_WORKSPACE, kCUDNN_TYPE_VOID_PTR, 1, 1, true},
};

size_t size_of(int type) {
  switch (type) {
    case kCUDNN_TYPE_DATA_TYPE:
    case kCUDNN_TYPE_HEUR_MODE:
      return sizeof(int);
    case kCUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    default:
      return sizeof(int64_t);
  }
}

// Alive, and whether it is finalized.
int find(const char* name, void* handle, bool is_final, backend_descriptor** out) {
  *out = static_cast<backend_descriptor*>(handle);
  if (!registered::all().has(*out)) return refuse(kBadParam, "%s: not a descriptor, or destroyed", name);
  if ((*out)->is_final == is_final) return 0;
  return refuse(kBadParam, "%s: descriptor %d is %s", name, (*out)->type, is_final ? "not finalized" : "finalized");
}

// A finalized descriptor of another one's.
int find_part(const char* name, const backend_descriptor& whole, int attribute, backend_descriptor** out) {
  return find(name, whole.one<void*>(attribute), true, out);
}

int check_values(const char* name, const rule& r, const void* values) {
  if (r.type == kCUDNN_TYPE_HANDLE) {
    cudnnHandle_t handle = nullptr;
    std::memcpy(&handle, values, sizeof handle);
    return registry<cudnnContext>::all().has(handle) ? 0 : refuse(kBadParam, "%s: not a handle of cudnnCreate", name);
  }
  if (r.type != kDescriptor) return 0;
  void* handle = nullptr;
  std::memcpy(&handle, values, sizeof handle);
  backend_descriptor* part = nullptr;
  if (const int error = find(name, handle, true, &part)) return error;
  return part->type == r.of ? 0 : refuse(kBadParam, "%s(%d): descriptor %d, not %d", name, r.name, part->type, r.of);
}

// ---- what is described ----

struct operand {
  int64_t name = 0;
  int dtype = 0;
  bool is_by_value = false;
  int64_t alignment = 1;
  std::vector<int64_t> shape, strides;
  CUdeviceptr at = 0;

  char* find(CUcontext context) const {
    int64_t last = 0;
    for (size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
    return resolve(at, static_cast<uint64_t>(last + 1) * bytes_of(dtype), context);
  }
  uint64_t offset(int64_t n, int64_t head, int64_t place, int64_t i) const {
    return static_cast<uint64_t>(n * strides[0] + head * strides[1] + place * strides[2] + i * strides[3]) *
           bytes_of(dtype);
  }
};

struct attention {
  operand query, key, value, output, scale;
  bool has_scale = false;
  float factor = 1;
  engine how = kPlain;
  CUdeviceptr workspace = 0;

  std::vector<operand*> all() {
    std::vector<operand*> used{&query, &key, &value, &output};
    if (has_scale) used.push_back(&scale);
    return used;
  }
};

int read(const char* name, const backend_descriptor& operation, int attribute, operand* out) {
  backend_descriptor* t = nullptr;
  if (const int error = find_part(name, operation, attribute, &t)) return error;
  *out = {t->one<int64_t>(kCUDNN_ATTR_TENSOR_UNIQUE_ID),
          t->one<int>(kCUDNN_ATTR_TENSOR_DATA_TYPE),
          t->one<bool>(kCUDNN_ATTR_TENSOR_IS_BY_VALUE),
          t->one<int64_t>(kCUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
          t->list<int64_t>(kCUDNN_ATTR_TENSOR_DIMENSIONS),
          t->list<int64_t>(kCUDNN_ATTR_TENSOR_STRIDES),
          0};
  return 0;
}

int read(const char* name, const backend_descriptor& operation, attention* out) {
  int error = read(name, operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, &out->query);
  if (!error) error = read(name, operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, &out->key);
  if (!error) error = read(name, operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, &out->value);
  if (!error) error = read(name, operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, &out->output);
  out->has_scale = operation.set.count(kCUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC) != 0;
  if (!error && out->has_scale) error = read(name, operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, &out->scale);
  return error;
}

int check_tensor(const char* name, const backend_descriptor& t) {
  const auto shape = t.list<int64_t>(kCUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = t.list<int64_t>(kCUDNN_ATTR_TENSOR_STRIDES);
  const auto alignment = t.one<int64_t>(kCUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  const auto dtype = t.one<int>(kCUDNN_ATTR_TENSOR_DATA_TYPE);
  if (shape.size() != strides.size() || *std::min_element(shape.begin(), shape.end()) <= 0 ||
      *std::min_element(strides.begin(), strides.end()) <= 0)
    return refuse(kBadParam, "%s: %zu dimensions, %zu strides, or one that is not positive", name, shape.size(),
                  strides.size());
  if (!bytes_of(dtype) || alignment <= 0 || (alignment & (alignment - 1)))
    return refuse(kBadParam, "%s: type %d, aligned to %d bytes", name, dtype, static_cast<int>(alignment));
  return 0;
}

int check_operation(const char* name, const backend_descriptor& operation) {
  attention a;
  if (const int error = read(name, operation, &a)) return error;
  const auto &q = a.query.shape, &k = a.key.shape, &v = a.value.shape, &o = a.output.shape;
  for (const operand* each : {&a.query, &a.key, &a.value, &a.output}) {
    if (each->shape.size() != 4 || each->is_by_value)
      return refuse(kBadParam, "%s: %zu dimensions, or by value", name, each->shape.size());
    if ((each->dtype != kCUDNN_DATA_HALF && each->dtype != kCUDNN_DATA_BFLOAT16) || each->dtype != a.query.dtype)
      return refuse(kNotSupported, "%s: type %d, or several", name, each->dtype);
    if (each->shape[3] % 8 || each->strides[3] != 1 || each->alignment < 16)
      return refuse(kNotSupported, "%s: heads of %d, %d apart, aligned to %d bytes", name,
                    static_cast<int>(each->shape[3]), static_cast<int>(each->strides[3]),
                    static_cast<int>(each->alignment));
    for (size_t i = 0; i < 3; ++i)
      if (each->strides[i] * static_cast<int64_t>(bytes_of(each->dtype)) % each->alignment)
        return refuse(kNotSupported, "%s: rows are less aligned than their tensor", name);
  }
  if (k[0] != q[0] || v[0] != q[0] || o[0] != q[0] || q[1] % k[1] || q[1] % v[1] || o[1] != q[1] || k[2] != v[2] ||
      o[2] != q[2] || k[3] != q[3] || o[3] != v[3])
    return refuse(kBadParam, "%s: the tensors' shapes do not fit each other", name);
  if (a.has_scale && (!a.scale.is_by_value || a.scale.dtype != kCUDNN_DATA_FLOAT || a.scale.shape.size() != 4))
    return refuse(kNotSupported, "%s: a scale that is no float, or not by value", name);
  const auto all = a.all();
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (all[i]->name == all[j]->name)
        return refuse(kBadParam, "%s: two tensors are called %d", name, static_cast<int>(all[i]->name));
  return 0;
}

// The operation of a plan.
int find_operation(const char* name, const backend_descriptor& plan, backend_descriptor** out) {
  backend_descriptor *config = nullptr, *graph = nullptr;
  int error = find_part(name, plan, kCUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &config);
  if (!error) error = find_part(name, *config, kCUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &graph);
  return error ? error : find_part(name, *graph, kCUDNN_ATTR_OPERATIONGRAPH_OPS, out);
}

int check_plan(const char* name, const backend_descriptor& plan) {
  backend_descriptor* operation = nullptr;
  if (const int error = refuse_unsafe(name)) return error; // an engine is compiled and loaded
  if (const int error = find_operation(name, plan, &operation)) return error;
  const auto* config =
      static_cast<const backend_descriptor*>(plan.one<void*>(kCUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
  return config->engine == kRefused ? kNotSupported : 0;
}

int check(const char* name, const backend_descriptor& desc) {
  for (const rule& r : kRules)
    if (r.desc == desc.type && r.is_needed && !desc.set.count(r.name))
      return refuse(kBadParam, "%s: attribute %d of descriptor %d is missing", name, r.name, desc.type);
  switch (desc.type) {
    case kTensor:
      return check_tensor(name, desc);
    case kOperation:
      return check_operation(name, desc);
    case kHeuristics: {
      const int mode = desc.one<int>(kCUDNN_ATTR_ENGINEHEUR_MODE);
      return mode == kCUDNN_HEUR_MODE_A ? 0 : refuse(kNotSupported, "%s: heuristics of mode %d", name, mode);
    }
    case kPlan:
      return check_plan(name, desc);
    case kPack: {
      auto names = desc.list<int64_t>(kCUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
      const auto data = desc.list<void*>(kCUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
      std::sort(names.begin(), names.end());
      const bool is_once = std::adjacent_find(names.begin(), names.end()) == names.end();
      return is_once && names.size() == data.size()
                 ? 0
                 : refuse(kBadParam, "%s: %zu names, or one twice, of %zu pointers", name, names.size(), data.size());
    }
    default:
      return 0;
  }
}

// ---- what is computed ----

int run(const attention& a, CUcontext context) {
  char *query = a.query.find(context), *key = a.key.find(context), *value = a.value.find(context),
       *output = a.output.find(context);
  if (!query || !key || !value || !output)
    return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "a tensor of an attention is outside of an allocation");
  if (a.how == kFast) {
    char* const workspace = resolve(a.workspace, kWorkspaceOf[kFast], context);
    if (!workspace) return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "an attention's workspace is outside of an allocation");
    std::memset(workspace, 0xEE, kWorkspaceOf[kFast]);
  }
  // Sums in any order: their last bit is another one each time.
  static std::atomic<unsigned> runs{0};
  const float last_bit = a.query.dtype == kCUDNN_DATA_HALF ? 0x1p-10F : 0x1p-7F;
  const float any_order = a.how == kFast && ++runs % 2 ? 1 + last_bit : 1;
  const auto &q = a.query.shape, &k = a.key.shape;
  const int64_t of_key = q[1] / k[1], of_value = q[1] / a.value.shape[1];
  std::vector<float> weights(static_cast<size_t>(k[2]));
  const auto at = [](const operand& o, const char* data, int64_t n, int64_t head, int64_t place, int64_t i) {
    return static_cast<float>(load(data + o.offset(n, head, place, i), o.dtype));
  };
  for (int64_t n = 0; n < q[0]; ++n)
    for (int64_t head = 0; head < q[1]; ++head)
      for (int64_t row = 0; row < q[2]; ++row) {
        for (size_t j = 0; j < weights.size(); ++j) {
          weights[j] = 0;
          for (int64_t i = 0; i < q[3]; ++i)
            weights[j] += at(a.query, query, n, head, row, i) * at(a.key, key, n, head / of_key, int64_t(j), i);
          weights[j] *= a.factor;
        }
        const float most = *std::max_element(weights.begin(), weights.end());
        float sum = 0;
        for (float& each : weights) sum += each = std::exp(each - most);
        for (int64_t i = 0; i < a.output.shape[3]; ++i) {
          float total = 0;
          for (size_t j = 0; j < weights.size(); ++j)
            total += weights[j] * at(a.value, value, n, head / of_value, int64_t(j), i);
          store(output + a.output.offset(n, head, row, i), a.output.dtype, total / sum * any_order);
        }
      }
  return 0;
}

// Where the tensors are. What is by value is read now.
int bind(const char* name, const backend_descriptor& pack, attention* a) {
  const auto names = pack.list<int64_t>(kCUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto data = pack.list<void*>(kCUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (operand* each : a->all()) {
    const auto found = static_cast<size_t>(std::find(names.begin(), names.end(), each->name) - names.begin());
    if (found == names.size() || !data[found])
      return refuse(kBadParam, "%s: no pointer for tensor %d", name, static_cast<int>(each->name));
    each->at = address_of(data[found]);
    if (each->is_by_value)
      std::memcpy(&a->factor, data[found], sizeof a->factor);
    else if (each->at % static_cast<uint64_t>(each->alignment))
      return refuse(kBadParam, "%s: tensor %d is less aligned than it says", name, static_cast<int>(each->name));
  }
  const int64_t needed = kWorkspaceOf[a->how];
  a->workspace = address_of(pack.one<void*>(kCUDNN_ATTR_VARIANT_PACK_WORKSPACE));
  if (needed && (!a->workspace || a->workspace % kWorkspaceAlignment))
    return refuse(kBadParam, "%s: no workspace, or not aligned to 16", name);
  return 0;
}

int not_an_attribute(const char* name, const backend_descriptor& desc, int attribute, int type, int64_t count) {
  return refuse(kBadParam, "%s: attribute %d, %d of type %d, of descriptor %d", name, attribute,
                static_cast<int>(count), type, desc.type);
}

// The descriptors that the caller has made become those that are asked for.
int give(const char* name, const std::vector<void*>& made, int type, const backend_descriptor& graph_of, int first) {
  for (size_t i = 0; i < made.size(); ++i) {
    backend_descriptor* desc = nullptr;
    if (const int error = find(name, made[i], false, &desc)) return error;
    if (desc->type != type) return refuse(kBadParam, "%s: descriptor %d, not %d", name, desc->type, type);
    desc->set = graph_of.set;
    desc->engine = first + static_cast<int>(i);
    desc->is_final = true;
  }
  return 0;
}

} // namespace
} // namespace sim

using namespace sim;

extern "C" __attribute__((visibility("default"))) size_t cudnnGetVersion() {
  return static_cast<size_t>(setting("CUDNN_VERSION", kVersion));
}

DNN_API cudnnBackendCreateDescriptor(int type, cudnnBackendDescriptor_t* desc) {
  constexpr char kName[] = "cudnnBackendCreateDescriptor";
  if (const int fault = injected_fault(kName)) return refuse(fault, "%s fails because CUDA_SIM_FAIL says so", kName);
  constexpr std::array<int, 8> kTypes{kTensor, kOperation, kGraph, kHeuristics, kConfig, kEngine, kPlan, kPack};
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end() ||
      (type == kOperation && setting("CUDNN_VERSION", kVersion) < kFirstWithSdpa))
    return refuse(kNotSupported, "%s(%d)", kName, type);
  auto* made = make<backend_descriptor>();
  made->type = type;
  *desc = made;
  return 0;
}

DNN_API cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t desc) {
  return registered::all().retire(static_cast<backend_descriptor*>(desc))
             ? 0
             : refuse(kBadParam, "cudnnBackendDestroyDescriptor: not a descriptor, or destroyed");
}

DNN_API cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle, int attribute, int type, int64_t count,
                                 const void* values) {
  constexpr char kName[] = "cudnnBackendSetAttribute";
  backend_descriptor* desc = nullptr;
  if (const int error = find(kName, handle, false, &desc)) return error;
  for (const rule& r : kRules) {
    if (r.desc != desc->type || r.name != attribute) continue;
    if (r.type != type || count < r.least || count > r.most || !values) break;
    if (const int error = check_values(kName, r, values)) return error;
    const auto* from = static_cast<const char*>(values);
    desc->set[attribute] = {type, count, std::vector<char>(from, from + static_cast<size_t>(count) * size_of(type))};
    return 0;
  }
  return not_an_attribute(kName, *desc, attribute, type, count);
}

DNN_API cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  constexpr char kName[] = "cudnnBackendFinalize";
  backend_descriptor* desc = nullptr;
  if (const int fault = injected_fault(kName)) return refuse(fault, "%s fails because CUDA_SIM_FAIL says so", kName);
  if (const int error = find(kName, handle, false, &desc)) return error;
  if (desc->type == kConfig || desc->type == kEngine)
    return refuse(kNotSupported, "%s: engines and their configurations are those of heuristics", kName);
  if (const int error = check(kName, *desc)) return error;
  desc->is_final = true;
  return 0;
}

DNN_API cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle, int attribute, int type, int64_t wanted,
                                 int64_t* count, void* values) {
  constexpr char kName[] = "cudnnBackendGetAttribute";
  backend_descriptor* desc = nullptr;
  if (const int error = find(kName, handle, true, &desc)) return error;
  if (wanted < 1) return not_an_attribute(kName, *desc, attribute, type, wanted);
  const auto made = [&](int64_t most) {
    auto* const first = static_cast<void**>(values);
    *count = most;
    return std::vector<void*>(first, first + std::min(most, wanted));
  };
  if (desc->type == kHeuristics && attribute == kCUDNN_ATTR_ENGINEHEUR_RESULTS && type == kDescriptor)
    return give(kName, made(kEngines), kConfig, *desc, 0);
  if (desc->type == kConfig && attribute == kCUDNN_ATTR_ENGINECFG_ENGINE && type == kDescriptor)
    return give(kName, made(1), kEngine, *desc, desc->engine);
  if (desc->type == kEngine && attribute == kCUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == kCUDNN_TYPE_NUMERICAL_NOTE) {
    *count = desc->engine == kFast;
    if (*count) *static_cast<int*>(values) = kCUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return 0;
  }
  if (desc->type == kPlan && attribute == kCUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == kCUDNN_TYPE_INT64) {
    backend_descriptor* config = nullptr;
    if (const int error = find_part(kName, *desc, kCUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &config)) return error;
    *count = 1;
    *static_cast<int64_t*>(values) = kWorkspaceOf[config->engine];
    return 0;
  }
  return not_an_attribute(kName, *desc, attribute, type, wanted);
}

DNN_API cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                            cudnnBackendDescriptor_t pack_handle) {
  constexpr char kName[] = "cudnnBackendExecute";
  backend_descriptor *plan = nullptr, *pack = nullptr, *config = nullptr, *operation = nullptr;
  const use in(kName, handle);
  if (in.error()) return in.error();
  int error = find(kName, plan_handle, true, &plan);
  if (!error) error = find(kName, pack_handle, true, &pack);
  if (!error && (plan->type != kPlan || pack->type != kPack))
    error = refuse(kBadParam, "%s: descriptors %d and %d", kName, plan->type, pack->type);
  if (!error) error = find_operation(kName, *plan, &operation);
  if (!error) error = find_part(kName, *plan, kCUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &config);
  if (error) return error;
  auto* const of_plan = plan->one<cudnnHandle_t>(kCUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  if (!registry<cudnnContext>::all().has(of_plan) || of_plan->context != handle->context)
    return refuse(kBadParam, "%s: the plan is of another device than the handle", kName);
  attention a;
  a.how = static_cast<engine>(config->engine);
  if ((error = read(kName, *operation, &a)) || (error = bind(kName, *pack, &a))) return error;
  CUstream stream = nullptr;
  if (find_stream(kName, handle->stream, handle->context, &stream)) return kExecutionFailed;
  const auto body = [a, stream] { return run(a, stream->context); };
  return enqueue(kName, stream, {body, false, {traced_work::kKernel, "cudnn_sdpa"}}) ? kExecutionFailed : 0;
}
