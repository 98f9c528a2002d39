// The simulated libcudnn's attention: which operands it takes, and what it computes.
#include <algorithm>

#include "cudnn_graph.h"

namespace sim {
namespace {

constexpr int kForward = kCUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
              kBackward = kCUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR,
              kMask = kCUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR;

} // namespace

const std::vector<part> kParts{
    {kForward, kCUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, true, &attention::query},
    {kForward, kCUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, true, &attention::key},
    {kForward, kCUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, true, &attention::value},
    {kForward, kCUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, true, &attention::output},
    {kForward, kCUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, false, &attention::stats},
    {kForward, kCUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, false, &attention::scale},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, true, &attention::query},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, true, &attention::key},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, true, &attention::value},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, true, &attention::output},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, true, &attention::stats},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, false, &attention::scale},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, true, &attention::grad_output},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, true, &attention::grad_query},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, true, &attention::grad_key},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, true, &attention::grad_value},
    {kMask, kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, true, &attention::scores},
    {kMask, kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC, true, &attention::nothing},
    {kMask, kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, true, &attention::masked},
};

const std::vector<subgraph> kSubgraphs{
    {kForward, kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID,
     kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID},
    {kBackward, kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH, kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID,
     kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID},
};

namespace {

const subgraph& subgraph_of(const backend_descriptor& operation) {
  return kSubgraphs[operation.type == kBackward];
}

int read_parts(const char* name, const backend_descriptor& operation, attention* out) {
  for (const part& each : kParts) {
    if (each.operation != operation.type || !operation.set.count(each.attribute)) continue;
    backend_descriptor* t = nullptr;
    if (const int error = find_part(name, operation, each.attribute, &t)) return error;
    out->*each.where = {{scalar_type_of(t->one<int>(kCUDNN_ATTR_TENSOR_DATA_TYPE)),
                         t->list<int64_t>(kCUDNN_ATTR_TENSOR_DIMENSIONS), t->list<int64_t>(kCUDNN_ATTR_TENSOR_STRIDES)},
                        t->one<int64_t>(kCUDNN_ATTR_TENSOR_UNIQUE_ID),
                        t->one<bool>(kCUDNN_ATTR_TENSOR_IS_BY_VALUE),
                        t->one<bool>(kCUDNN_ATTR_TENSOR_IS_VIRTUAL),
                        t->one<int64_t>(kCUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)};
  }
  return 0;
}

// ---- what it takes ----

int check_halves(const char* name, const graph_tensor& o, at::ScalarType dtype) {
  if (o.sizes.size() != 4 || o.is_by_value || o.is_virtual)
    return refuse(kBadParam, "%s: %zu dimensions, or by value, or virtual", name, o.sizes.size());
  if ((o.dtype != at::kHalf && o.dtype != at::kBFloat16) || o.dtype != dtype)
    return refuse(kNotSupported, "%s: type %s, or several", name, c10::toString(o.dtype));
  if (o.sizes[3] % 8 || o.strides[3] != 1 || o.alignment < 16)
    return refuse(kNotSupported, "%s: heads of %d, %d apart, aligned to %d bytes", name, static_cast<int>(o.sizes[3]),
                  static_cast<int>(o.strides[3]), static_cast<int>(o.alignment));
  for (size_t i = 0; i < 3; ++i)
    if (o.strides[i] * static_cast<int64_t>(at::elementSize(o.dtype)) % o.alignment)
      return refuse(kNotSupported, "%s: rows are less aligned than their tensor", name);
  return 0;
}

int check_number(const char* name, const graph_tensor& o) {
  const bool is_one = o.sizes.size() == 4 && std::all_of(o.sizes.begin(), o.sizes.end(), [](auto n) { return n == 1; });
  return o.is_by_value && !o.is_virtual && o.dtype == at::kFloat && is_one
             ? 0
             : refuse(kNotSupported, "%s: a number that is no float, or not by value", name);
}

// Of the scores that the operation has in between.
int check_scores(const char* name, const graph_tensor& o, const std::vector<int64_t>& shape) {
  return o.is_virtual && !o.is_by_value && o.dtype == at::kFloat && o.sizes == shape
             ? 0
             : refuse(kBadParam, "%s: scores that are not virtual, no float, or of another shape", name);
}

} // namespace

std::vector<graph_tensor*> attention::given() {
  std::vector<graph_tensor*> used;
  for (graph_tensor* each :
       {&query, &key, &value, &output, &stats, &grad_output, &grad_query, &grad_key, &grad_value, &scale, &nothing})
    if (!each->sizes.empty()) used.push_back(each);
  return used;
}

std::vector<graph_tensor*> attention::all() {
  std::vector<graph_tensor*> used = given();
  for (graph_tensor* each : {&scores, &masked})
    if (!each->sizes.empty()) used.push_back(each);
  return used;
}

int read(const char* name, const backend_descriptor& operation, attention* out) {
  out->is_backward = operation.type == kBackward;
  int error = read_parts(name, operation, out);
  const subgraph& s = subgraph_of(operation);
  out->is_causal = operation.set.count(s.graph) != 0;
  if (error || !out->is_causal) return error;
  backend_descriptor *graph = nullptr, *mask = nullptr;
  error = find_part(name, operation, s.graph, &graph);
  if (!error) error = find_part(name, *graph, kCUDNN_ATTR_OPERATIONGRAPH_OPS, &mask);
  return error ? error : read_parts(name, *mask, out);
}

int check_mask(const char* name, const backend_descriptor& operation) {
  attention a;
  if (const int error = read_parts(name, operation, &a)) return error;
  const int mode = operation.one<int>(kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE);
  if (mode != kCUDNN_POINTWISE_CMP_GE) return refuse(kNotSupported, "%s: a mask by comparison %d", name, mode);
  int error = check_scores(name, a.scores, a.masked.sizes);
  if (!error) error = check_scores(name, a.masked, a.scores.sizes);
  return error ? error : check_number(name, a.nothing);
}

int check_attention(const char* name, const backend_descriptor& operation) {
  attention a;
  if (const int error = read(name, operation, &a)) return error;
  const auto &q = a.query.sizes, &k = a.key.sizes, &v = a.value.sizes, &o = a.output.sizes;
  for (const graph_tensor* each :
       {&a.query, &a.key, &a.value, &a.output, &a.grad_output, &a.grad_query, &a.grad_key, &a.grad_value})
    if (!each->sizes.empty())
      if (const int error = check_halves(name, *each, a.query.dtype)) return error;
  if (k[0] != q[0] || v[0] != q[0] || o[0] != q[0] || q[1] % k[1] || q[1] % v[1] || o[1] != q[1] || k[2] != v[2] ||
      o[2] != q[2] || k[3] != q[3] || o[3] != v[3])
    return refuse(kBadParam, "%s: the tensors' shapes do not fit each other", name);
  if (a.is_backward && (a.grad_output.sizes != o || a.grad_query.sizes != q || a.grad_key.sizes != k ||
                        a.grad_value.sizes != v || q[1] != k[1] || q[1] != v[1]))
    return refuse(kBadParam, "%s: the gradients' shapes are not those of what they are of", name);
  const graph_tensor& stats = a.stats;
  if (!stats.sizes.empty() && (stats.sizes != std::vector<int64_t>{q[0], q[1], q[2], 1} || stats.dtype != at::kFloat ||
                               stats.is_by_value || stats.is_virtual))
    return refuse(kBadParam, "%s: statistics of another shape, or no float", name);
  if (!a.scale.sizes.empty())
    if (const int error = check_number(name, a.scale)) return error;
  const subgraph& s = subgraph_of(operation);
  if (operation.set.count(s.input) != operation.set.count(s.graph) ||
      operation.set.count(s.output) != operation.set.count(s.graph))
    return refuse(kBadParam, "%s: a subgraph without its ends, or ends without one", name);
  if (a.is_causal) {
    if (operation.one<int64_t>(s.input) != a.scores.name || operation.one<int64_t>(s.output) != a.masked.name)
      return refuse(kBadParam, "%s: the subgraph has no tensors of its ends' names", name);
    if (const int error = check_scores(name, a.scores, {q[0], q[1], q[2], k[2]})) return error;
  }
  const auto all = a.all();
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (all[i]->name == all[j]->name)
        return refuse(kBadParam, "%s: two tensors are called %d", name, static_cast<int>(all[i]->name));
  return 0;
}

// ---- what it computes ----

std::vector<operand> operands_of(const attention& a) {
  return {a.query, a.key, a.value, a.output, a.stats, a.grad_output, a.grad_query, a.grad_key, a.grad_value};
}

void run(const attention& a, const tensors& t) {
  const at::Tensor query = t[0].to(at::kDouble);
  // Of each of the query's heads.
  const auto wide = [&](const at::Tensor& x) {
    return x.to(at::kDouble).repeat_interleave(query.size(1) / x.size(1), 1);
  };
  const at::Tensor key = wide(t[1]), value = wide(t[2]);
  const at::Tensor &output = t[3], &stats = t[4];
  const double order = a.is_in_any_order ? any_order(output.scalar_type()) : 1;
  at::Tensor scores = query.matmul(key.mT()) * a.factor;
  if (a.is_causal) scores.masked_fill_(at::ones_like(scores, at::kBool).triu(1), a.left_out);
  if (!a.is_backward) {
    const at::Tensor sums = scores.logsumexp(-1, true);
    output.copy_((scores - sums).exp().matmul(value) * order);
    if (stats.defined()) stats.copy_(sums);
    return;
  }
  const at::Tensor weights = (scores - stats).exp(), grad_output = wide(t[5]);
  const at::Tensor mean = (grad_output * output).sum(-1, true); // of the weights' gradients
  const at::Tensor grad_scores = weights * (grad_output.matmul(value.mT()) - mean) * a.factor;
  t[6].copy_(grad_scores.matmul(key) * order);
  t[7].copy_(grad_scores.mT().matmul(query));
  t[8].copy_(weights.mT().matmul(grad_output));
}

} // namespace sim
