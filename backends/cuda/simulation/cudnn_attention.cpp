// The simulated libcudnn's attention: which operands it takes, and what it computes.
#include <algorithm>
#include <cmath>

#include "cudnn_graph.h"

namespace sim {
namespace {

struct part {
  int attribute;
  operand attention::* where;
};

constexpr part kForward[] = {
    {kCUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, &attention::query},
    {kCUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, &attention::key},
    {kCUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, &attention::value},
    {kCUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, &attention::output},
    {kCUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, &attention::stats},
    {kCUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, &attention::scale},
};
constexpr part kBackward[] = {
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, &attention::query},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, &attention::key},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, &attention::value},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, &attention::output},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, &attention::stats},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, &attention::scale},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, &attention::grad_output},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, &attention::grad_query},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, &attention::grad_key},
    {kCUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, &attention::grad_value},
};
constexpr part kMask[] = {
    {kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, &attention::scores},
    {kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC, &attention::nothing},
    {kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, &attention::masked},
};

struct subgraph {
  int graph, input, output;
};
constexpr subgraph kOfForward{kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH,
                              kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID,
                              kCUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID},
    kOfBackward{kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH, kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID,
                kCUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID};

const subgraph& subgraph_of(const backend_descriptor& operation) {
  return operation.type == kCUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR ? kOfBackward : kOfForward;
}

template <size_t N>
int read_parts(const char* name, const backend_descriptor& operation, const part (&parts)[N], attention* out) {
  for (const part& each : parts) {
    if (!operation.set.count(each.attribute)) continue;
    backend_descriptor* t = nullptr;
    if (const int error = find_part(name, operation, each.attribute, &t)) return error;
    out->*each.where = {
        t->one<int64_t>(kCUDNN_ATTR_TENSOR_UNIQUE_ID),      t->one<int>(kCUDNN_ATTR_TENSOR_DATA_TYPE),
        t->one<bool>(kCUDNN_ATTR_TENSOR_IS_BY_VALUE),       t->one<bool>(kCUDNN_ATTR_TENSOR_IS_VIRTUAL),
        t->one<int64_t>(kCUDNN_ATTR_TENSOR_BYTE_ALIGNMENT), t->list<int64_t>(kCUDNN_ATTR_TENSOR_DIMENSIONS),
        t->list<int64_t>(kCUDNN_ATTR_TENSOR_STRIDES),       0};
  }
  return 0;
}

// ---- what it takes ----

int check_halves(const char* name, const operand& o, int dtype) {
  if (o.shape.size() != 4 || o.is_by_value || o.is_virtual)
    return refuse(kBadParam, "%s: %zu dimensions, or by value, or virtual", name, o.shape.size());
  if ((o.dtype != kCUDNN_DATA_HALF && o.dtype != kCUDNN_DATA_BFLOAT16) || o.dtype != dtype)
    return refuse(kNotSupported, "%s: type %d, or several", name, o.dtype);
  if (o.shape[3] % 8 || o.strides[3] != 1 || o.alignment < 16)
    return refuse(kNotSupported, "%s: heads of %d, %d apart, aligned to %d bytes", name, static_cast<int>(o.shape[3]),
                  static_cast<int>(o.strides[3]), static_cast<int>(o.alignment));
  for (size_t i = 0; i < 3; ++i)
    if (o.strides[i] * static_cast<int64_t>(bytes_of(o.dtype)) % o.alignment)
      return refuse(kNotSupported, "%s: rows are less aligned than their tensor", name);
  return 0;
}

int check_number(const char* name, const operand& o) {
  const bool is_one = o.shape.size() == 4 && std::all_of(o.shape.begin(), o.shape.end(), [](auto n) { return n == 1; });
  return o.is_by_value && !o.is_virtual && o.dtype == kCUDNN_DATA_FLOAT && is_one
             ? 0
             : refuse(kNotSupported, "%s: a number that is no float, or not by value", name);
}

// Of the scores that the operation has in between.
int check_scores(const char* name, const operand& o, const std::vector<int64_t>& shape) {
  return o.is_virtual && !o.is_by_value && o.dtype == kCUDNN_DATA_FLOAT && o.shape == shape
             ? 0
             : refuse(kBadParam, "%s: scores that are not virtual, no float, or of another shape", name);
}

} // namespace

std::vector<operand*> attention::given() {
  std::vector<operand*> used;
  for (operand* each :
       {&query, &key, &value, &output, &stats, &grad_output, &grad_query, &grad_key, &grad_value, &scale, &nothing})
    if (!each->shape.empty()) used.push_back(each);
  return used;
}

std::vector<operand*> attention::all() {
  std::vector<operand*> used = given();
  for (operand* each : {&scores, &masked})
    if (!each->shape.empty()) used.push_back(each);
  return used;
}

int read(const char* name, const backend_descriptor& operation, attention* out) {
  out->is_backward = operation.type == kCUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR;
  int error =
      out->is_backward ? read_parts(name, operation, kBackward, out) : read_parts(name, operation, kForward, out);
  const subgraph& s = subgraph_of(operation);
  out->is_causal = operation.set.count(s.graph) != 0;
  if (error || !out->is_causal) return error;
  backend_descriptor *graph = nullptr, *mask = nullptr;
  error = find_part(name, operation, s.graph, &graph);
  if (!error) error = find_part(name, *graph, kCUDNN_ATTR_OPERATIONGRAPH_OPS, &mask);
  return error ? error : read_parts(name, *mask, kMask, out);
}

int check_mask(const char* name, const backend_descriptor& operation) {
  attention a;
  if (const int error = read_parts(name, operation, kMask, &a)) return error;
  const int mode = operation.one<int>(kCUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE);
  if (mode != kCUDNN_POINTWISE_CMP_GE) return refuse(kNotSupported, "%s: a mask by comparison %d", name, mode);
  int error = check_scores(name, a.scores, a.masked.shape);
  if (!error) error = check_scores(name, a.masked, a.scores.shape);
  return error ? error : check_number(name, a.nothing);
}

int check_attention(const char* name, const backend_descriptor& operation) {
  attention a;
  if (const int error = read(name, operation, &a)) return error;
  const auto &q = a.query.shape, &k = a.key.shape, &v = a.value.shape, &o = a.output.shape;
  for (const operand* each :
       {&a.query, &a.key, &a.value, &a.output, &a.grad_output, &a.grad_query, &a.grad_key, &a.grad_value})
    if (!each->shape.empty())
      if (const int error = check_halves(name, *each, a.query.dtype)) return error;
  if (k[0] != q[0] || v[0] != q[0] || o[0] != q[0] || q[1] % k[1] || q[1] % v[1] || o[1] != q[1] || k[2] != v[2] ||
      o[2] != q[2] || k[3] != q[3] || o[3] != v[3])
    return refuse(kBadParam, "%s: the tensors' shapes do not fit each other", name);
  if (a.is_backward && (a.grad_output.shape != o || a.grad_query.shape != q || a.grad_key.shape != k ||
                        a.grad_value.shape != v || q[1] != k[1] || q[1] != v[1]))
    return refuse(kBadParam, "%s: the gradients' shapes are not those of what they are of", name);
  const operand& stats = a.stats;
  if (!stats.shape.empty() && (stats.shape != std::vector<int64_t>{q[0], q[1], q[2], 1} ||
                               stats.dtype != kCUDNN_DATA_FLOAT || stats.is_by_value || stats.is_virtual))
    return refuse(kBadParam, "%s: statistics of another shape, or no float", name);
  if (!a.scale.shape.empty())
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

namespace {

// An operand's memory.
struct view {
  const operand* o;
  char* data;

  float load(int64_t n, int64_t head, int64_t place, int64_t i) const {
    return static_cast<float>(sim::load(data + o->offset(n, head, place, i), o->dtype));
  }
  void store(int64_t n, int64_t head, int64_t place, int64_t i, float computed) const {
    sim::store(data + o->offset(n, head, place, i), o->dtype, computed);
  }
};

struct tensors {
  view query, key, value, output, stats, grad_output, grad_query, grad_key, grad_value;
};

// Of a row, before the softmax.
std::vector<float> scores_of(const attention& a, const tensors& t, int64_t n, int64_t head, int64_t row) {
  const int64_t of_key = head / (a.query.shape[1] / a.key.shape[1]);
  std::vector<float> scores(static_cast<size_t>(a.key.shape[2]));
  for (size_t j = 0; j < scores.size(); ++j) {
    const auto place = static_cast<int64_t>(j);
    for (int64_t i = 0; i < a.query.shape[3]; ++i)
      scores[j] += t.query.load(n, head, row, i) * t.key.load(n, of_key, place, i);
    scores[j] = a.is_causal && place > row ? a.left_out : scores[j] * a.factor;
  }
  return scores;
}

void run_forward(const attention& a, const tensors& t, int64_t n, int64_t head, int64_t row, float last_bit) {
  std::vector<float> weights = scores_of(a, t, n, head, row);
  const int64_t of_value = head / (a.query.shape[1] / a.value.shape[1]);
  const float most = *std::max_element(weights.begin(), weights.end());
  float sum = 0;
  for (float& each : weights) sum += each = std::exp(each - most);
  if (t.stats.data) t.stats.store(n, head, row, 0, most + std::log(sum));
  for (int64_t i = 0; i < a.output.shape[3]; ++i) {
    float total = 0;
    for (size_t j = 0; j < weights.size(); ++j)
      total += weights[j] * t.value.load(n, of_value, static_cast<int64_t>(j), i);
    t.output.store(n, head, row, i, total / sum * last_bit);
  }
}

// Of one head. Sums over rows are in float, as those over columns.
void run_backward(const attention& a, const tensors& t, int64_t n, int64_t head, float last_bit) {
  const int64_t rows = a.query.shape[2], columns = a.key.shape[2], width = a.query.shape[3],
                of_value = a.value.shape[3];
  std::vector<float> grad_key(static_cast<size_t>(columns * width)),
      grad_value(static_cast<size_t>(columns * of_value));
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<float> weights = scores_of(a, t, n, head, row), grad_query(static_cast<size_t>(width));
    float mean = 0; // of the weights' gradients
    for (int64_t i = 0; i < of_value; ++i) mean += t.grad_output.load(n, head, row, i) * t.output.load(n, head, row, i);
    for (int64_t j = 0; j < columns; ++j) {
      const float weight = std::exp(weights[static_cast<size_t>(j)] - t.stats.load(n, head, row, 0));
      float grad = 0;
      for (int64_t i = 0; i < of_value; ++i) {
        grad += t.grad_output.load(n, head, row, i) * t.value.load(n, head, j, i);
        grad_value[static_cast<size_t>(j * of_value + i)] += weight * t.grad_output.load(n, head, row, i);
      }
      const float of_score = weight * (grad - mean) * a.factor;
      for (int64_t i = 0; i < width; ++i) {
        grad_query[static_cast<size_t>(i)] += of_score * t.key.load(n, head, j, i);
        grad_key[static_cast<size_t>(j * width + i)] += of_score * t.query.load(n, head, row, i);
      }
    }
    for (int64_t i = 0; i < width; ++i)
      t.grad_query.store(n, head, row, i, grad_query[static_cast<size_t>(i)] * last_bit);
  }
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < width; ++i) t.grad_key.store(n, head, j, i, grad_key[static_cast<size_t>(j * width + i)]);
    for (int64_t i = 0; i < of_value; ++i)
      t.grad_value.store(n, head, j, i, grad_value[static_cast<size_t>(j * of_value + i)]);
  }
}

} // namespace

int run(const attention& a, CUcontext context) {
  bool is_there = true;
  const auto view_of = [&](const operand& o) {
    view v{&o, nullptr};
    if (!o.shape.empty()) is_there = (v.data = o.find(context)) && is_there;
    return v;
  };
  const tensors t{view_of(a.query),      view_of(a.key),      view_of(a.value),
                  view_of(a.output),     view_of(a.stats),    view_of(a.grad_output),
                  view_of(a.grad_query), view_of(a.grad_key), view_of(a.grad_value)};
  if (!is_there) return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "a tensor of an attention is outside of an allocation");
  static std::atomic<unsigned> runs{0};
  const float bit = a.query.dtype == kCUDNN_DATA_HALF ? 0x1p-10F : 0x1p-7F;
  const float last_bit = a.is_in_any_order && ++runs % 2 ? 1 + bit : 1;
  for (int64_t n = 0; n < a.query.shape[0]; ++n)
    for (int64_t head = 0; head < a.query.shape[1]; ++head) {
      if (a.is_backward) run_backward(a, t, n, head, last_bit);
      for (int64_t row = 0; !a.is_backward && row < a.query.shape[2]; ++row) run_forward(a, t, n, head, row, last_bit);
    }
  return 0;
}

} // namespace sim
