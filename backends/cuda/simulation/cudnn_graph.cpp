// The simulated libcudnn's graphs, of one attention: the rules of what describes them, which are descriptors, their
// attributes, engines, plans, and what they are run on.
#include <algorithm>
#include <array>

#include "cudnn_graph.h"

namespace sim {
namespace {

constexpr int kVersion = 92800, kFirstWithBackward = 92000;

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
  int of = 0;    // what a descriptor has to be
  int since = 0; // the first cuDNN that has it
};

constexpr int kTensor = kCUDNN_BACKEND_TENSOR_DESCRIPTOR, kForward = kCUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
              kBackward = kCUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR,
              kMask = kCUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR,
              kGraph = kCUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, kHeuristics = kCUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
              kConfig = kCUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kEngine = kCUDNN_BACKEND_ENGINE_DESCRIPTOR,
              kPlan = kCUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, kPack = kCUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr int kDescriptor = kCUDNN_TYPE_BACKEND_DESCRIPTOR;
constexpr int kAnyOperation = -1;
constexpr int kFirstWithSubgraphs = 92100;

bool is_operation(int type) {
  return type == kForward || type == kBackward || type == kMask;
}

std::vector<rule> make_rules() {
  std::vector<rule> all{
      {kTensor, kCUDNN_ATTR_TENSOR_UNIQUE_ID, kCUDNN_TYPE_INT64, 1, 1, true},
      {kTensor, kCUDNN_ATTR_TENSOR_DATA_TYPE, kCUDNN_TYPE_DATA_TYPE, 1, 1, true},
      {kTensor, kCUDNN_ATTR_TENSOR_DIMENSIONS, kCUDNN_TYPE_INT64, 1, 8, true},
      {kTensor, kCUDNN_ATTR_TENSOR_STRIDES, kCUDNN_TYPE_INT64, 1, 8, true},
      {kTensor, kCUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kCUDNN_TYPE_INT64, 1, 1, true},
      {kTensor, kCUDNN_ATTR_TENSOR_IS_BY_VALUE, kCUDNN_TYPE_BOOLEAN, 1, 1, false},
      {kTensor, kCUDNN_ATTR_TENSOR_IS_VIRTUAL, kCUDNN_TYPE_BOOLEAN, 1, 1, false},
      {kGraph, kCUDNN_ATTR_OPERATIONGRAPH_HANDLE, kCUDNN_TYPE_HANDLE, 1, 1, true},
      {kGraph, kCUDNN_ATTR_OPERATIONGRAPH_OPS, kDescriptor, 1, 1, true, kAnyOperation},
      {kHeuristics, kCUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kDescriptor, 1, 1, true, kGraph},
      {kHeuristics, kCUDNN_ATTR_ENGINEHEUR_MODE, kCUDNN_TYPE_HEUR_MODE, 1, 1, true},
      {kPlan, kCUDNN_ATTR_EXECUTION_PLAN_HANDLE, kCUDNN_TYPE_HANDLE, 1, 1, true},
      {kPlan, kCUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kDescriptor, 1, 1, true, kConfig},
      {kPack, kCUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kCUDNN_TYPE_INT64, 1, 64, true},
      {kPack, kCUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, kCUDNN_TYPE_VOID_PTR, 1, 64, true},
      {kPack, kCUDNN_ATTR_VARIANT_PACK_WORKSPACE, kCUDNN_TYPE_VOID_PTR, 1, 1, true},
      {kMask, kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE, kCUDNN_TYPE_POINTWISE_MODE, 1, 1, true},
  };
  for (const part& p : kParts) all.push_back({p.operation, p.attribute, kDescriptor, 1, 1, p.is_needed, kTensor});
  for (const subgraph& s : kSubgraphs) {
    all.push_back({s.operation, s.graph, kDescriptor, 1, 1, false, kGraph, kFirstWithSubgraphs});
    for (const int end : {s.input, s.output})
      all.push_back({s.operation, end, kCUDNN_TYPE_INT64, 1, 1, false, 0, kFirstWithSubgraphs});
  }
  return all;
}

const std::vector<rule>& rules() {
  static const auto& all = *new std::vector<rule>(make_rules());
  return all;
}

size_t size_of(int type) {
  switch (type) {
    case kCUDNN_TYPE_DATA_TYPE:
    case kCUDNN_TYPE_HEUR_MODE:
    case kCUDNN_TYPE_POINTWISE_MODE:
      return sizeof(int);
    case kCUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    default:
      return sizeof(int64_t);
  }
}

} // namespace

int find(const char* name, void* handle, bool is_final, backend_descriptor** out) {
  *out = static_cast<backend_descriptor*>(handle);
  if (!registered::all().has(*out)) return refuse(kBadParam, "%s: not a descriptor, or destroyed", name);
  if ((*out)->is_final == is_final) return 0;
  return refuse(kBadParam, "%s: descriptor %d is %s", name, (*out)->type, is_final ? "not finalized" : "finalized");
}

int find_part(const char* name, const backend_descriptor& whole, int attribute, backend_descriptor** out) {
  return find(name, whole.one<void*>(attribute), true, out);
}

namespace {

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
  const bool fits = r.of == kAnyOperation ? is_operation(part->type) : part->type == r.of;
  return fits ? 0 : refuse(kBadParam, "%s(%d): descriptor %d, not %d", name, r.name, part->type, r.of);
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
  if (scalar_type_of(dtype) == at::ScalarType::Undefined || alignment <= 0 || (alignment & (alignment - 1)))
    return refuse(kBadParam, "%s: type %d, aligned to %d bytes", name, dtype, static_cast<int>(alignment));
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
  for (const rule& r : rules())
    if (r.desc == desc.type && r.is_needed && !desc.set.count(r.name))
      return refuse(kBadParam, "%s: attribute %d of descriptor %d is missing", name, r.name, desc.type);
  switch (desc.type) {
    case kTensor:
      return check_tensor(name, desc);
    case kBackward:
      // As on an H200 with 9.19.
      if (setting("CUDNN_VERSION", kVersion) < kFirstWithBackward)
        return refuse(kBadParam, "%s: no gradients of attention", name);
      return check_attention(name, desc);
    case kForward:
      return check_attention(name, desc);
    case kMask:
      return check_mask(name, desc);
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

// Where the tensors are. What is by value is read now.
int bind(const char* name, const backend_descriptor& pack, attention* a, CUdeviceptr* workspace, engine how) {
  const auto names = pack.list<int64_t>(kCUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto data = pack.list<void*>(kCUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (graph_tensor* each : a->given()) {
    const auto found = static_cast<size_t>(std::find(names.begin(), names.end(), each->name) - names.begin());
    if (found == names.size() || !data[found])
      return refuse(kBadParam, "%s: no pointer for tensor %d", name, static_cast<int>(each->name));
    each->address = address_of(data[found]);
    if (each->is_by_value)
      std::memcpy(each == &a->scale ? &a->factor : &a->left_out, data[found], sizeof(float));
    else if (each->address % static_cast<uint64_t>(each->alignment))
      return refuse(kBadParam, "%s: tensor %d is less aligned than it says", name, static_cast<int>(each->name));
  }
  const int64_t needed = kWorkspaceOf[how];
  *workspace = address_of(pack.one<void*>(kCUDNN_ATTR_VARIANT_PACK_WORKSPACE));
  if (needed && (!*workspace || *workspace % kWorkspaceAlignment))
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
  // With the first cuDNN that has it.
  constexpr std::pair<int, int> kTypes[] = {{kTensor, 0}, {kForward, 91301}, {kBackward, 91700}, {kMask, 92000},
                                            {kGraph, 0},  {kHeuristics, 0},  {kConfig, 0},       {kEngine, 0},
                                            {kPlan, 0},   {kPack, 0}};
  const auto has = [type](const auto& each) {
    return each.first == type && setting("CUDNN_VERSION", kVersion) >= each.second;
  };
  if (std::none_of(std::begin(kTypes), std::end(kTypes), has)) return refuse(kNotSupported, "%s(%d)", kName, type);
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
  for (const rule& r : rules()) {
    if (r.desc != desc->type || r.name != attribute || setting("CUDNN_VERSION", kVersion) < r.since) continue;
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
  constexpr const char* kName = "cudnnBackendExecute";
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
  CUdeviceptr workspace = 0;
  const auto how = static_cast<engine>(config->engine);
  a.is_in_any_order = how == kFast;
  if ((error = read(kName, *operation, &a)) || (error = bind(kName, *pack, &a, &workspace, how))) return error;
  const auto on_stream = [a](const tensors& operands) { run(a, operands); };
  return in.enqueue(
      {kName, "cudnn_sdpa", operands_of(a), workspace, static_cast<uint64_t>(kWorkspaceOf[how]), on_stream});
}
