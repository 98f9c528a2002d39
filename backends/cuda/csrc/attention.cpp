#include "attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cudnn_graph.h"
#include "device.h"
#include "kernel.h"
#include "stream.h"

namespace xcuda {
namespace {

// The first cuDNN in which softmax(scale * q k^T) v and its gradients are an operation each, and the first in which scores
// may be masked in between.
constexpr size_t kFirstVersion = 91700, kFirstWithMask = 92100;
// Of every row: NVIDIA's frontend promises no less, and wants heads of a multiple of 8 halves.
constexpr int64_t kAlignmentBytes = 16, kAlignment = 8;
constexpr int kDims = 4; // batch, heads, places, elements

constexpr library_dtypes cudnn_dtype_of{kCUDNN_DATA_HALF, kCUDNN_DATA_BFLOAT16, kNone, kNone};

// What tensors are called in a graph and in what it is run on.
enum name : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kStats, // of each row: the logarithm of the sum of what its scores are the logarithms of
  kGradOutput,
  kGradQuery,
  kGradKey,
  kGradValue,
  kEnd,
  // On the host.
  kScale = kEnd,
  kNothing, // what a score that is left out becomes
  // In the graph alone.
  kScores,
  kMasked,
};

// ---- problems ----

// One that there is not has the shape 0.
struct layout {
  std::array<int64_t, kDims> shape{}, strides{};
};

struct problem {
  int32_t device = 0;
  bool is_deterministic = false, is_backward = false, is_causal = false;
  int dtype = kNone;
  std::array<layout, kEnd> tensors{};

  const layout& operator[](name n) const {
    return tensors[n];
  }
  bool has(name n) const {
    return tensors[n].shape[0] != 0;
  }
  // All of it.
  std::array<int64_t, 5 + 2 * kDims * kEnd> all() const {
    std::array<int64_t, 5 + 2 * kDims * kEnd> numbers{device, is_deterministic, is_backward, is_causal, dtype};
    auto next = numbers.begin() + 5;
    for (const layout& each : tensors)
      for (const auto* part : {&each.shape, &each.strides}) next = std::copy(part->begin(), part->end(), next);
    return numbers;
  }
};

// One problem and where its tensors are.
class call {
 public:
  call(const tb_kernel_context& context, const tb_arg& query) {
    p_.device = context.device;
    p_.is_deterministic = context.flags & TB_MATH_DETERMINISTIC;
    p_.dtype = cudnn_dtype_of(tensor_of(query).dtype);
  }

  // Of elements that lie beside each other, in rows that are aligned. A dimension of one element may have any stride.
  void add(name n, const tb_arg& arg) {
    const tb_tensor& t = tensor_of(arg);
    layout& l = p_.tensors[n];
    fits_ = fits_ && t.ndim == kDims && cudnn_dtype_of(t.dtype) == p_.dtype && p_.dtype != kNone &&
            reinterpret_cast<uint64_t>(data_of(t)) % kAlignmentBytes == 0;
    int64_t next = 1;
    for (int i = kDims - 1; fits_ && i >= 0; --i) {
      const auto dim = static_cast<size_t>(i);
      l.shape[dim] = t.shape[i];
      l.strides[dim] = l.shape[dim] == 1 ? next : t.strides[i];
      next = l.strides[dim] * l.shape[dim];
      fits_ = i == kDims - 1 ? l.strides[dim] == 1 && l.shape[dim] % kAlignment == 0
                             : l.strides[dim] > 0 && l.strides[dim] % kAlignment == 0;
    }
    data_[n] = data_of(t);
  }
  // (batch, heads, at least as many as there are places)
  void add_stats(const tb_arg& arg) {
    const tb_tensor& t = tensor_of(arg);
    const int64_t places = p_[kQuery].shape[2];
    fits_ = fits_ && t.ndim == kDims - 1 && t.dtype.code == TB_DTYPE_FLOAT && t.dtype.bits == 32 &&
            t.shape[2] >= places && t.strides[2] == 1;
    if (fits_) p_.tensors[kStats] = {{t.shape[0], t.shape[1], places, 1}, {t.strides[0], t.strides[1], 1, 1}};
    data_[kStats] = data_of(t);
  }
  // Not one that is given: what becomes of rows that it leaves nothing of is not said.
  void mask(const tb_arg& given, const tb_arg& is_causal) {
    p_.is_causal = is_causal.v.i;
    fits_ = fits_ && given.tag != TB_ARG_TENSOR && (!p_.is_causal || cudnn_version() >= kFirstWithMask);
  }
  result run(const tb_kernel_context& context, const tb_arg& scale, bool is_backward);

 private:
  // Heads of keys and values may be shared by several of the queries'.
  bool has_shapes_that_fit() const {
    const auto &q = p_[kQuery].shape, &k = p_[kKey].shape, &v = p_[kValue].shape;
    return k[0] == q[0] && v[0] == q[0] && q[1] % k[1] == 0 && q[1] % v[1] == 0 && k[2] == v[2] && k[3] == q[3];
  }

  problem p_;
  bool fits_ = true;
  std::array<const void*, kEnd> data_{};
};

// ---- plans ----

struct part {
  int attribute;
  name tensor;
};

struct operation {
  int type, scale, subgraph, subgraph_input, subgraph_output;
  std::array<part, 9> parts; // those that a problem does not have are left out
};

constexpr operation kForward{
    kCUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
    kCUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
    kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH,
    kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID,
    kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID,
    {{{kCUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, kQuery},
      {kCUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, kKey},
      {kCUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, kValue},
      {kCUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, kOutput},
      {kCUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, kStats}}},
};
constexpr operation kBackward{
    kCUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR,
    kCUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC,
    kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH,
    kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID,
    kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID,
    {{{kCUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, kQuery},
      {kCUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, kKey},
      {kCUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, kValue},
      {kCUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, kOutput},
      {kCUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, kStats},
      {kCUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, kGradOutput},
      {kCUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, kGradQuery},
      {kCUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, kGradKey},
      {kCUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, kGradValue}}},
};

// The graph for one problem, and what runs it. One thread.
class plan {
 public:
  // Once.
  result make(cudnnHandle_t handle, const problem& p) {
    const outside_captures outside;
    const operation& o = p.is_backward ? kBackward : kForward;
    const cudnnBackendDescriptor_t desc = made_.create(o.type);
    for (const part& each : o.parts)
      if (p.has(each.tensor))
        made_.set(desc, each.attribute, tensor(each.tensor, each.tensor == kStats ? kCUDNN_DATA_FLOAT : p.dtype, p));
    made_.set(desc, o.scale, tensor(kScale, kCUDNN_DATA_FLOAT, p));
    if (p.is_causal) mask(handle, p, o, desc);
    made_.finalize(desc);
    const cudnnBackendDescriptor_t graph = made_.graph(handle, {desc});
    result r = made_.outcome();
    if (r.ok()) r = plan_.make(handle, graph, p.is_deterministic);
    // Some versions answer so for an operation that they do not have: 9.19 for the gradients.
    if (r.status != TB_STATUS_INVALID_ARGUMENT) return r;
    host().log(TB_LOG_DEBUG, ("xcuda: this attention is generated kernels: " + r.text).c_str());
    return refuse();
  }

  result run(cudnnHandle_t handle, const tb_kernel_context& context, const problem& p,
             const std::array<const void*, kEnd>& data, float scale) const {
    static constexpr float kLeftOut = -std::numeric_limits<float>::infinity();
    std::vector<int64_t> names{kScale};
    std::vector<const void*> where{&scale};
    for (int64_t n = kQuery; n < kEnd; ++n) {
      if (!p.has(static_cast<name>(n))) continue;
      names.push_back(n);
      where.push_back(data[static_cast<size_t>(n)]);
    }
    if (p.is_causal) {
      names.push_back(kNothing);
      where.push_back(&kLeftOut);
    }
    return plan_.run(handle, context, names, where);
  }

 private:
  cudnnBackendDescriptor_t tensor(name n, int dtype, const problem& p) {
    layout l{{1, 1, 1, 1}, {1, 1, 1, 1}};
    const int64_t heads = p[kQuery].shape[1], rows = p[kQuery].shape[2], columns = p[kKey].shape[2];
    const bool is_by_value = n == kScale || n == kNothing, is_virtual = n >= kScores;
    if (is_virtual)
      l = {{p[kQuery].shape[0], heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
    else if (!is_by_value)
      l = p[n];
    const cudnnBackendDescriptor_t desc = made_.create(kCUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made_.set_value(desc, kCUDNN_ATTR_TENSOR_UNIQUE_ID, kCUDNN_TYPE_INT64, int64_t{n});
    made_.set(desc, kCUDNN_ATTR_TENSOR_DATA_TYPE, kCUDNN_TYPE_DATA_TYPE, &dtype);
    made_.set(desc, kCUDNN_ATTR_TENSOR_DIMENSIONS, kCUDNN_TYPE_INT64, l.shape.data(), kDims);
    made_.set(desc, kCUDNN_ATTR_TENSOR_STRIDES, kCUDNN_TYPE_INT64, l.strides.data(), kDims);
    made_.set(desc, kCUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kCUDNN_TYPE_INT64, &kAlignmentBytes);
    made_.set(desc, kCUDNN_ATTR_TENSOR_IS_BY_VALUE, kCUDNN_TYPE_BOOLEAN, &is_by_value);
    made_.set(desc, kCUDNN_ATTR_TENSOR_IS_VIRTUAL, kCUDNN_TYPE_BOOLEAN, &is_virtual);
    made_.finalize(desc);
    return desc;
  }

  // The operation's own graph, from its scores to those that it takes the softmax of: row >= column stays.
  void mask(cudnnHandle_t handle, const problem& p, const operation& o, cudnnBackendDescriptor_t desc) {
    const cudnnBackendDescriptor_t band = made_.create(kCUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR);
    made_.set(band, kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, tensor(kScores, kCUDNN_DATA_FLOAT, p));
    made_.set(band, kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC, tensor(kNothing, kCUDNN_DATA_FLOAT, p));
    made_.set(band, kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, tensor(kMasked, kCUDNN_DATA_FLOAT, p));
    made_.set(band, kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE, kCUDNN_TYPE_POINTWISE_MODE,
              &kCUDNN_POINTWISE_CMP_GE);
    made_.finalize(band);
    made_.set(desc, o.subgraph, made_.graph(handle, {band}));
    made_.set_value(desc, o.subgraph_input, kCUDNN_TYPE_INT64, int64_t{kScores});
    made_.set_value(desc, o.subgraph_output, kCUDNN_TYPE_INT64, int64_t{kMasked});
  }

  descriptors made_;
  execution_plan plan_;
};

// ---- kernels ----

result call::run(const tb_kernel_context& context, const tb_arg& scale, bool is_backward) {
  p_.is_backward = is_backward;
  if (!fits_ || !has_shapes_that_fit()) return refuse();
  const context_scope scope(device_at(context.device));
  result r = scope.failure();
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<plan> found;
  if (r.ok()) r = cudnn_handle(context.device, handle_of(context.stream), &handle);
  if (r.ok()) r = find_plan(p_.all(), &found, [&](plan& made) { return made.make(handle, p_); });
  if (!r.ok()) return r;
  const float factor = scale.tag == TB_ARG_FLOAT ? static_cast<float>(scale.v.f)
                                                 : 1 / std::sqrt(static_cast<float>(p_[kQuery].shape[3]));
  return found->run(handle, context, p_, data_, factor);
}

// (query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, scale), output, log_sumexp, and what there is to
// know of a dropout
result attention(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  if (args[5].v.f != 0) return refuse();
  call c(*context, args[0]);
  for (const auto& [n, i] : {std::pair{kQuery, 0}, {kKey, 1}, {kValue, 2}, {kOutput, 8}}) c.add(n, args[i]);
  if (args[4].v.i) c.add_stats(args[9]);
  c.mask(args[3], args[6]);
  return c.run(*context, args[7], false);
}

// (grad_out, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask, is_causal,
// scale), four gradients. Without that of a mask: cuDNN has it since 9.28.
result attention_backward(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  if (args[9].v.f != 0 || args[16].tag == TB_ARG_TENSOR) return refuse();
  call c(*context, args[1]);
  for (const auto& [n, i] : {std::pair{kGradOutput, 0},
                             {kQuery, 1},
                             {kKey, 2},
                             {kValue, 3},
                             {kOutput, 5},
                             {kGradQuery, 13},
                             {kGradKey, 14},
                             {kGradValue, 15}})
    c.add(n, args[i]);
  c.add_stats(args[6]);
  c.mask(args[4], args[11]);
  return c.run(*context, args[12], true);
}

} // namespace

void add_attention_kernels(std::vector<const tb_kernel*>* out_kernels) {
  static constexpr uint64_t kHalves[TB_DTYPE_MASK_WORDS] = {TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 16) |
                                                            TB_DTYPE_MASK_FLAG(TB_DTYPE_BFLOAT, 16)};
  static const tb_kernel kernels[] = {
      {sizeof(tb_kernel), "aten::_scaled_dot_product_efficient_attention", boundary<attention>::call,
       TB_KERNEL_MATH_FLAGS | TB_KERNEL_INPUT_DTYPES, 0, kHalves},
      // What is kept of the forward pass is an input of this one, and of any dtype.
      {sizeof(tb_kernel), "aten::_scaled_dot_product_efficient_attention_backward", boundary<attention_backward>::call,
       TB_KERNEL_MATH_FLAGS, 0, nullptr}};
  const bool offered = load_cudnn() && cudnn_version() >= kFirstVersion;
  for (const tb_kernel& each : kernels)
    if (offered) out_kernels->push_back(&each);
}

} // namespace xcuda
