#include "attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "cudnn.h"
#include "device.h"
#include "kernel.h"
#include "options.h"
#include "stream.h"

namespace xcuda {
namespace {

// The first cuDNN in which softmax(scale * q k^T) v is one operation of its own.
constexpr size_t kFirstVersion = 91301;
constexpr int64_t kMaxWorkspaceBytes = 1 << 30;
// Of every row: NVIDIA's frontend promises no less, and wants heads of a multiple of 8 halves.
constexpr int64_t kAlignmentBytes = 16, kAlignment = 8;
constexpr int kDims = 4; // batch, heads, places, elements

constexpr library_dtypes cudnn_dtype_of{kCUDNN_DATA_HALF, kCUDNN_DATA_BFLOAT16, kNone, kNone};

// ---- problems ----

struct layout {
  std::array<int64_t, kDims> shape{}, strides{};
};

// Of elements that lie beside each other, in rows that are aligned. A dimension of one element may have any stride.
bool lay_out(const tb_tensor& t, layout* out) {
  if (t.ndim != kDims) return false;
  int64_t next = 1;
  for (int i = kDims - 1; i >= 0; --i) {
    const auto dim = static_cast<size_t>(i);
    out->shape[dim] = t.shape[i];
    out->strides[dim] = t.shape[i] == 1 ? next : t.strides[i];
    next = out->strides[dim] * out->shape[dim];
    const bool fits = i == kDims - 1 ? out->strides[dim] == 1 && t.shape[i] % kAlignment == 0
                                     : out->strides[dim] > 0 && out->strides[dim] % kAlignment == 0;
    if (!fits) return false;
  }
  return reinterpret_cast<uint64_t>(data_of(t)) % kAlignmentBytes == 0;
}

struct problem {
  int32_t device = 0;
  bool is_deterministic = false;
  int dtype = kNone;
  layout query, key, value, output;

  // All of it.
  std::array<int64_t, 3 + 8 * kDims> all() const {
    std::array<int64_t, 3 + 8 * kDims> numbers{device, is_deterministic, dtype};
    auto next = numbers.begin() + 3;
    for (const layout* each : {&query, &key, &value, &output})
      for (const auto* part : {&each->shape, &each->strides}) next = std::copy(part->begin(), part->end(), next);
    return numbers;
  }
};

// Whether each head of the queries has one of `shared`, which several may have.
bool has_heads_for(const layout& query, const layout& shared, bool may_share) {
  const int64_t heads = query.shape[1], of_shared = shared.shape[1];
  return shared.shape[0] == query.shape[0] && (may_share ? heads % of_shared == 0 : heads == of_shared);
}

bool describe(const tb_kernel_context& context, const tb_tensor& query, const tb_tensor& key, const tb_tensor& value,
              const tb_tensor& output, bool may_share_heads, problem* p) {
  p->device = context.device;
  p->is_deterministic = context.flags & TB_MATH_DETERMINISTIC;
  p->dtype = cudnn_dtype_of(query.dtype);
  for (const tb_tensor* each : {&query, &key, &value, &output})
    if (p->dtype == kNone || cudnn_dtype_of(each->dtype) != p->dtype) return false;
  return lay_out(query, &p->query) && lay_out(key, &p->key) && lay_out(value, &p->value) &&
         lay_out(output, &p->output) && has_heads_for(p->query, p->key, may_share_heads) &&
         has_heads_for(p->query, p->value, may_share_heads) && p->key.shape[2] == p->value.shape[2] &&
         p->key.shape[3] == p->query.shape[3];
}

// ---- descriptors ----

// Descriptors that live as long as this. After the first error nothing is done any more.
class descriptors {
 public:
  descriptors() = default;
  descriptors(const descriptors&) = delete;
  descriptors& operator=(const descriptors&) = delete;
  ~descriptors() {
    for (auto each = all_.rbegin(); each != all_.rend(); ++each) dnn.BackendDestroyDescriptor(*each);
  }

  cudnnBackendDescriptor_t create(int type) {
    cudnnBackendDescriptor_t desc = nullptr;
    note(error_ ? error_ : dnn.BackendCreateDescriptor(type, &desc), "cudnnBackendCreateDescriptor");
    if (desc) all_.push_back(desc);
    return desc;
  }
  template <typename T>
  void set(cudnnBackendDescriptor_t desc, int attribute, int type, const T* values, int64_t count = 1) {
    note(error_ ? error_ : dnn.BackendSetAttribute(desc, attribute, type, count, values), "cudnnBackendSetAttribute");
  }
  void set(cudnnBackendDescriptor_t desc, int attribute, cudnnBackendDescriptor_t value) {
    set(desc, attribute, kCUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
  }
  // How many there are of the `most` that are asked for.
  template <typename T>
  int64_t get(cudnnBackendDescriptor_t desc, int attribute, int type, T* values, int64_t most = 1) {
    int64_t count = 0;
    note(error_ ? error_ : dnn.BackendGetAttribute(desc, attribute, type, most, &count, values),
         "cudnnBackendGetAttribute");
    return error_ ? 0 : std::min(count, most);
  }
  void finalize(cudnnBackendDescriptor_t desc) {
    note(error_ ? error_ : dnn.BackendFinalize(desc), "cudnnBackendFinalize");
  }

  result outcome() const {
    return check_cudnn(error_, what_);
  }

 private:
  void note(cudnnStatus_t error, const char* what) {
    if (error && !error_) what_ = what;
    error_ = error;
  }

  std::vector<cudnnBackendDescriptor_t> all_;
  cudnnStatus_t error_ = 0;
  const char* what_ = "";
};

// ---- plans ----

// What the tensors are called in a plan and in what it is run on.
enum name : int64_t { kQuery = 1, kKey, kValue, kOutput, kScale };
constexpr std::array<int64_t, 5> kNames{kQuery, kKey, kValue, kOutput, kScale};

// The graph for one problem, and what runs it. One thread.
class plan {
 public:
  // Once.
  result make(cudnnHandle_t handle, const problem& p) {
    const outside_captures outside;
    const cudnnBackendDescriptor_t operation = made_.create(kCUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    made_.set(operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, tensor(kQuery, p.dtype, p.query));
    made_.set(operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, tensor(kKey, p.dtype, p.key));
    made_.set(operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, tensor(kValue, p.dtype, p.value));
    made_.set(operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, tensor(kOutput, p.dtype, p.output));
    made_.set(operation, kCUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
              tensor(kScale, kCUDNN_DATA_FLOAT, {{1, 1, 1, 1}, {1, 1, 1, 1}}));
    made_.finalize(operation);
    const cudnnBackendDescriptor_t graph = made_.create(kCUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    made_.set(graph, kCUDNN_ATTR_OPERATIONGRAPH_HANDLE, kCUDNN_TYPE_HANDLE, &handle);
    made_.set(graph, kCUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    made_.finalize(graph);
    return choose(handle, graph, p.is_deterministic);
  }

  // In the order of the names.
  result run(cudnnHandle_t handle, const tb_kernel_context& context, const std::array<const void*, 5>& data) const {
    void* workspace = nullptr;
    result r = allocate_workspace(context, static_cast<uint64_t>(workspace_bytes_), &workspace);
    if (!r.ok()) return r;
    descriptors call;
    const cudnnBackendDescriptor_t pack = call.create(kCUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    call.set(pack, kCUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kCUDNN_TYPE_INT64, kNames.data(), kNames.size());
    call.set(pack, kCUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, kCUDNN_TYPE_VOID_PTR, data.data(), data.size());
    call.set(pack, kCUDNN_ATTR_VARIANT_PACK_WORKSPACE, kCUDNN_TYPE_VOID_PTR, &workspace);
    call.finalize(pack);
    r = call.outcome();
    return r.ok() ? check_cudnn(dnn.BackendExecute(handle, runs_, pack), "cudnnBackendExecute") : r;
  }

 private:
  cudnnBackendDescriptor_t tensor(int64_t name, int dtype, const layout& l) {
    const cudnnBackendDescriptor_t desc = made_.create(kCUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool is_by_value = name == kScale;
    made_.set(desc, kCUDNN_ATTR_TENSOR_UNIQUE_ID, kCUDNN_TYPE_INT64, &name);
    made_.set(desc, kCUDNN_ATTR_TENSOR_DATA_TYPE, kCUDNN_TYPE_DATA_TYPE, &dtype);
    made_.set(desc, kCUDNN_ATTR_TENSOR_DIMENSIONS, kCUDNN_TYPE_INT64, l.shape.data(), kDims);
    made_.set(desc, kCUDNN_ATTR_TENSOR_STRIDES, kCUDNN_TYPE_INT64, l.strides.data(), kDims);
    made_.set(desc, kCUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kCUDNN_TYPE_INT64, &kAlignmentBytes);
    made_.set(desc, kCUDNN_ATTR_TENSOR_IS_BY_VALUE, kCUDNN_TYPE_BOOLEAN, &is_by_value);
    made_.finalize(desc);
    return desc;
  }

  // The first one, best by cuDNN's own estimate, that it can make a plan of and that is allowed.
  result choose(cudnnHandle_t handle, cudnnBackendDescriptor_t graph, bool is_deterministic) {
    constexpr int64_t kMost = 8;
    const cudnnBackendDescriptor_t heuristics = made_.create(kCUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    made_.set(heuristics, kCUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    made_.set(heuristics, kCUDNN_ATTR_ENGINEHEUR_MODE, kCUDNN_TYPE_HEUR_MODE, &kCUDNN_HEUR_MODE_A);
    made_.finalize(heuristics);
    std::array<cudnnBackendDescriptor_t, kMost> configs{};
    for (auto& each : configs) each = made_.create(kCUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const int64_t found =
        made_.get(heuristics, kCUDNN_ATTR_ENGINEHEUR_RESULTS, kCUDNN_TYPE_BACKEND_DESCRIPTOR, configs.data(), kMost);
    if (result r = made_.outcome(); !r.ok()) return r;
    for (int64_t i = 0; i < found; ++i) {
      result r = use(handle, configs[static_cast<size_t>(i)], is_deterministic);
      if (r.status != TB_STATUS_UNSUPPORTED) return r;
    }
    return refuse();
  }

  result use(cudnnHandle_t handle, cudnnBackendDescriptor_t config, bool is_deterministic) {
    if (is_deterministic && !has_same_bits(config)) return refuse();
    tried_ = std::make_unique<descriptors>();
    runs_ = tried_->create(kCUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    tried_->set(runs_, kCUDNN_ATTR_EXECUTION_PLAN_HANDLE, kCUDNN_TYPE_HANDLE, &handle);
    tried_->set(runs_, kCUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    tried_->finalize(runs_);
    tried_->get(runs_, kCUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, kCUDNN_TYPE_INT64, &workspace_bytes_);
    result r = tried_->outcome();
    return r.ok() && workspace_bytes_ > kMaxWorkspaceBytes ? refuse() : r;
  }

  // In every run.
  static bool has_same_bits(cudnnBackendDescriptor_t config) {
    constexpr int64_t kMost = 32; // there are ten
    descriptors asked;
    std::array<int, kMost> notes{};
    cudnnBackendDescriptor_t engine = asked.create(kCUDNN_BACKEND_ENGINE_DESCRIPTOR);
    asked.get(config, kCUDNN_ATTR_ENGINECFG_ENGINE, kCUDNN_TYPE_BACKEND_DESCRIPTOR, &engine);
    const int64_t count =
        asked.get(engine, kCUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kCUDNN_TYPE_NUMERICAL_NOTE, notes.data(), kMost);
    auto* const end = notes.data() + count;
    return asked.outcome().ok() && std::find(notes.data(), end, kCUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == end;
  }

  descriptors made_;
  std::unique_ptr<descriptors> tried_; // with runs_
  cudnnBackendDescriptor_t runs_ = nullptr;
  int64_t workspace_bytes_ = 0;
};

// ---- kernels ----

// (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa), out. The operation has no mask that is given, no
// causal one by itself, and no dropout.
result attention(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  const tb_tensor &query = tensor_of(args[0]), &key = tensor_of(args[1]), &value = tensor_of(args[2]),
                  &output = tensor_of(args[8]);
  const bool has_mask = args[3].tag == TB_ARG_TENSOR, has_dropout = args[4].v.f != 0, is_causal = args[5].v.i;
  problem p;
  if (has_mask || has_dropout || is_causal || !describe(*context, query, key, value, output, args[7].v.i, &p))
    return refuse();
  const context_scope scope(device_at(context->device));
  result r = scope.failure();
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<plan> found;
  if (r.ok()) r = cudnn_handle(context->device, handle_of(context->stream), &handle);
  if (r.ok()) r = find_plan(p.all(), &found, [&](plan& made) { return made.make(handle, p); });
  if (!r.ok()) return r;
  const float scale = args[6].tag == TB_ARG_FLOAT ? static_cast<float>(args[6].v.f)
                                                  : 1 / std::sqrt(static_cast<float>(p.query.shape[3]));
  return found->run(handle, *context, {data_of(query), data_of(key), data_of(value), data_of(output), &scale});
}

} // namespace

void add_attention_kernels(std::vector<const tb_kernel*>* out_kernels) {
  static const tb_kernel kernels[] = {kernel<attention>("aten::scaled_dot_product_attention")};
  const bool offered = settings().cudnn_attention && load_cudnn() && cudnn_version() >= kFirstVersion;
  for (const tb_kernel& each : kernels)
    if (offered) out_kernels->push_back(&each);
}

} // namespace xcuda
