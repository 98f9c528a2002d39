#include "cudnn_graph.h"

#include <algorithm>
#include <array>

#include "stream.h"

namespace xcuda {
namespace {

constexpr int64_t kMaxWorkspaceBytes = 1 << 30;

// Whether it gives the same bits in every run.
bool has_same_bits(cudnnBackendDescriptor_t config) {
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

} // namespace

descriptors::~descriptors() {
  for (auto each = all_.rbegin(); each != all_.rend(); ++each) dnn.BackendDestroyDescriptor(*each);
}

cudnnBackendDescriptor_t descriptors::create(int type) {
  cudnnBackendDescriptor_t desc = nullptr;
  note(error_ ? error_ : dnn.BackendCreateDescriptor(type, &desc), "cudnnBackendCreateDescriptor");
  if (desc) all_.push_back(desc);
  return desc;
}

void descriptors::finalize(cudnnBackendDescriptor_t desc) {
  note(error_ ? error_ : dnn.BackendFinalize(desc), "cudnnBackendFinalize");
}

cudnnBackendDescriptor_t descriptors::graph(cudnnHandle_t handle,
                                            const std::vector<cudnnBackendDescriptor_t>& operations) {
  const cudnnBackendDescriptor_t desc = create(kCUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(desc, kCUDNN_ATTR_OPERATIONGRAPH_HANDLE, kCUDNN_TYPE_HANDLE, &handle);
  set(desc, kCUDNN_ATTR_OPERATIONGRAPH_OPS, kCUDNN_TYPE_BACKEND_DESCRIPTOR, operations.data(),
      static_cast<int64_t>(operations.size()));
  finalize(desc);
  return desc;
}

void descriptors::note(cudnnStatus_t error, const char* what) {
  if (error && !error_) what_ = what;
  error_ = error;
}

result execution_plan::make(cudnnHandle_t handle, cudnnBackendDescriptor_t graph, bool is_deterministic) {
  constexpr int64_t kMost = 8;
  const cudnnBackendDescriptor_t heuristics = found_.create(kCUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  found_.set(heuristics, kCUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  found_.set(heuristics, kCUDNN_ATTR_ENGINEHEUR_MODE, kCUDNN_TYPE_HEUR_MODE, &kCUDNN_HEUR_MODE_A);
  found_.finalize(heuristics);
  std::array<cudnnBackendDescriptor_t, kMost> configs{};
  for (auto& each : configs) each = found_.create(kCUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  const int64_t count =
      found_.get(heuristics, kCUDNN_ATTR_ENGINEHEUR_RESULTS, kCUDNN_TYPE_BACKEND_DESCRIPTOR, configs.data(), kMost);
  if (result r = found_.outcome(); !r.ok()) return r;
  for (int64_t i = 0; i < count; ++i) {
    result r = use(handle, configs[static_cast<size_t>(i)], is_deterministic);
    if (r.status != TB_STATUS_UNSUPPORTED) return r;
  }
  return refuse();
}

result execution_plan::use(cudnnHandle_t handle, cudnnBackendDescriptor_t config, bool is_deterministic) {
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

result execution_plan::run(cudnnHandle_t handle, const tb_kernel_context& context, const std::vector<int64_t>& names,
                           const std::vector<const void*>& data) const {
  void* workspace = nullptr;
  result r = allocate_workspace(context, static_cast<uint64_t>(workspace_bytes_), &workspace);
  if (!r.ok()) return r;
  descriptors call;
  const auto count = static_cast<int64_t>(names.size());
  const cudnnBackendDescriptor_t pack = call.create(kCUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  call.set(pack, kCUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kCUDNN_TYPE_INT64, names.data(), count);
  call.set(pack, kCUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, kCUDNN_TYPE_VOID_PTR, data.data(), count);
  call.set(pack, kCUDNN_ATTR_VARIANT_PACK_WORKSPACE, kCUDNN_TYPE_VOID_PTR, &workspace);
  call.finalize(pack);
  r = call.outcome();
  return r.ok() ? check_cudnn(dnn.BackendExecute(handle, runs_, pack), "cudnnBackendExecute") : r;
}

} // namespace xcuda
