// The simulated libcudnn: convolutions that are computed one product after the other, and the rules of the descriptors,
// handles, algorithms and workspaces that they are described by.
#include "dnn.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

using shape_list = std::vector<int>;

struct cudnnTensorStruct {
  int dtype = -1;
  shape_list shape, strides;
};

struct cudnnFilterStruct {
  int dtype = -1, format = 0;
  shape_list shape, strides;
};

struct cudnnConvolutionStruct {
  int compute_type = -1, math_type = 0, groups = 1;
  shape_list padding, stride, dilation;
};

namespace sim {
namespace {

enum direction { kForward, kData, kFilter };

// What the heuristics answer, the fastest first: one that does not serve, one that wants more than there is, one whose sums are
// in any order, and one that needs nothing.
constexpr int kRefused = 5, kGreedy = 4, kFast = 1, kPlain = 0;
constexpr size_t kFastBytes = 1 << 12, kGreedyBytes = size_t{1} << 40;

// The first ten bits, as in cublaslt.cpp.
double to_tf32(double value) {
  auto single = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof bits);
  if (single == single) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~uint32_t{0x1fff};
  std::memcpy(&single, &bits, sizeof single);
  return single;
}

// ---- tensors ----

// A copy of a descriptor, which may change when the call has returned, and where its tensor is.
struct operand {
  int dtype = 0;
  shape_list shape, strides;
  CUdeviceptr at = 0;

  uint64_t extent() const {
    uint64_t last = 0;
    for (size_t i = 0; i < shape.size(); ++i) last += uint64_t(shape[i] - 1) * uint64_t(strides[i]);
    return last + 1;
  }
  char* find(CUcontext context) const {
    return resolve(at, extent() * bytes_of(dtype), context);
  }
};

template <typename Descriptor>
operand operand_of(const Descriptor* desc, const void* data) {
  return {desc->dtype, desc->shape, desc->strides, address_of(data)};
}

bool has_channels_last(const cudnnTensorStruct& t) {
  int stride = 1;
  const auto is_next = [&](size_t dim) {
    const bool is_it = t.shape[dim] == 1 || t.strides[dim] == stride;
    stride *= t.shape[dim];
    return is_it;
  };
  bool all = is_next(1);
  for (size_t dim = t.shape.size() - 1; dim > 1; --dim) all = all && is_next(dim);
  return all;
}

// ---- a convolution ----

struct convolution {
  direction way;
  operand x, w, y;
  cudnnConvolutionStruct desc;
  double alpha = 1, beta = 0;
  int algo = 0;
  CUdeviceptr workspace = 0;
  bool is_tf32 = false;
};

// Calls `visit` with the offsets in x, w and y of all that are multiplied with each other.
template <typename Visit>
void for_each_product(const convolution& c, Visit visit) {
  const size_t dims = c.x.shape.size() - 2;
  const int group_in = c.w.shape[1], group_out = c.w.shape[0] / c.desc.groups;
  const auto count = [](const shape_list& shape) {
    return std::accumulate(shape.begin() + 2, shape.end(), 1, std::multiplies<int>());
  };
  const int places = count(c.y.shape), taps = count(c.w.shape);
  for (int n = 0; n < c.y.shape[0]; ++n)
    for (int place = 0; place < places; ++place)
      for (int tap = 0; tap < taps; ++tap) {
        int64_t x_at = int64_t{n} * c.x.strides[0], w_at = 0, y_at = int64_t{n} * c.y.strides[0];
        bool is_inside = true;
        for (size_t i = dims, p = size_t(place), t = size_t(tap); i-- > 0;) {
          const auto out = static_cast<int>(p % size_t(c.y.shape[i + 2])),
                     at = static_cast<int>(t % size_t(c.w.shape[i + 2]));
          p /= size_t(c.y.shape[i + 2]), t /= size_t(c.w.shape[i + 2]);
          const int in = out * c.desc.stride[i] - c.desc.padding[i] + at * c.desc.dilation[i];
          is_inside = is_inside && in >= 0 && in < c.x.shape[i + 2];
          x_at += int64_t{in} * c.x.strides[i + 2], w_at += int64_t{at} * c.w.strides[i + 2];
          y_at += int64_t{out} * c.y.strides[i + 2];
        }
        if (!is_inside) continue;
        for (int k = 0; k < c.w.shape[0]; ++k)
          for (int ci = 0; ci < group_in; ++ci)
            visit(x_at + int64_t{k / group_out * group_in + ci} * c.x.strides[1],
                  w_at + int64_t{k} * c.w.strides[0] + int64_t{ci} * c.w.strides[1],
                  y_at + int64_t{k} * c.y.strides[1]);
      }
}

std::vector<double> values_of(const operand& o, const char* data, bool is_tf32) {
  std::vector<double> all(o.extent());
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = load(data + i * bytes_of(o.dtype), o.dtype);
    if (is_tf32) all[i] = to_tf32(all[i]);
  }
  return all;
}

// Writes the elements of a tensor, and nothing between them.
template <typename Value>
void write(const operand& o, char* data, Value value) {
  shape_list index(o.shape.size());
  const auto total = std::accumulate(o.shape.begin(), o.shape.end(), int64_t{1}, std::multiplies<int64_t>());
  for (int64_t i = 0; i < total; ++i) {
    int64_t rest = i, at = 0;
    for (size_t dim = o.shape.size(); dim-- > 0; rest /= o.shape[dim]) {
      index[dim] = static_cast<int>(rest % o.shape[dim]);
      at += int64_t{index[dim]} * o.strides[dim];
    }
    char* const to = data + static_cast<uint64_t>(at) * bytes_of(o.dtype);
    store(to, o.dtype, value(index, static_cast<size_t>(at), load(to, o.dtype)));
  }
}

int run(const convolution& c, CUcontext context) {
  char *x = c.x.find(context), *w = c.w.find(context), *y = c.y.find(context);
  if (!x || !w || !y)
    return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "a convolution's %s is outside of an allocation",
                  !x   ? "x"
                  : !w ? "w"
                       : "y");
  if (c.algo == kFast) {
    char* const workspace = resolve(c.workspace, kFastBytes, context);
    if (!workspace) return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "a convolution's workspace is outside of an allocation");
    std::memset(workspace, 0xEE, kFastBytes);
  }
  const operand& out = c.way == kForward ? c.y : c.way == kData ? c.x : c.w;
  std::vector<double> sums(out.extent());
  const auto xs = values_of(c.x, x, c.is_tf32), ws = values_of(c.w, w, c.is_tf32), ys = values_of(c.y, y, c.is_tf32);
  for_each_product(c, [&](int64_t i, int64_t j, int64_t k) {
    const auto at_x = static_cast<size_t>(i), at_w = static_cast<size_t>(j), at_y = static_cast<size_t>(k);
    if (c.way == kForward) sums[at_y] += xs[at_x] * ws[at_w];
    if (c.way == kData) sums[at_x] += ys[at_y] * ws[at_w];
    if (c.way == kFilter) sums[at_w] += xs[at_x] * ys[at_y];
  });
  // Sums in any order: their last bit is another one each time.
  static std::atomic<unsigned> runs{0};
  const double last_bit = out.dtype == kCUDNN_DATA_DOUBLE ? 0x1p-52 : 0x1p-23;
  const double any_order = c.algo == kFast && c.way != kForward && ++runs % 2 ? 1 + last_bit : 1;
  write(out,
        c.way == kForward ? y
        : c.way == kData  ? x
                          : w,
        [&](const shape_list&, size_t at, double before) {
          return c.alpha * sums[at] * any_order + (c.beta == 0 ? 0 : c.beta * before);
        });
  return 0;
}

// ---- checks ----

int check_tensor(const char* name, const cudnnTensorStruct* t) {
  return registry<cudnnTensorStruct>::all().has(const_cast<cudnnTensorStruct*>(t)) && t->dtype >= 0
             ? 0
             : refuse(kBadParam, "%s: not a tensor descriptor that was set", name);
}

int check_problem(const char* name, const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                  const cudnnConvolutionStruct* desc, const cudnnTensorStruct* y) {
  for (const auto* each : {x, y})
    if (const int error = check_tensor(name, each)) return error;
  if (!registry<cudnnFilterStruct>::all().has(const_cast<cudnnFilterStruct*>(w)) || w->dtype < 0 ||
      !registry<cudnnConvolutionStruct>::all().has(const_cast<cudnnConvolutionStruct*>(desc)) || desc->padding.empty())
    return refuse(kBadParam, "%s: not descriptors of a filter and a convolution that were set", name);
  const size_t dims = desc->padding.size();
  if (x->shape.size() != dims + 2 || w->shape.size() != dims + 2 || y->shape.size() != dims + 2)
    return refuse(kBadParam, "%s: %zu dimensions of x, w, y or the convolution are another number", name, dims);
  if (x->dtype != w->dtype || x->dtype != y->dtype) return refuse(kNotSupported, "%s: several types", name);
  if ((x->dtype == kCUDNN_DATA_DOUBLE ? kCUDNN_DATA_DOUBLE : kCUDNN_DATA_FLOAT) != desc->compute_type)
    return refuse(kNotSupported, "%s: type %d is not computed in %d", name, x->dtype, desc->compute_type);
  if (x->shape[0] != y->shape[0] || x->shape[1] != w->shape[1] * desc->groups || y->shape[1] != w->shape[0] ||
      w->shape[0] % desc->groups)
    return refuse(kBadParam, "%s: %d and %d channels, in %d groups, of a filter of %d and %d", name, x->shape[1],
                  y->shape[1], desc->groups, w->shape[1], w->shape[0]);
  for (size_t i = 0; i < dims; ++i) {
    const int reach = desc->dilation[i] * (w->shape[i + 2] - 1) + 1;
    const int expected = (x->shape[i + 2] + 2 * desc->padding[i] - reach) / desc->stride[i] + 1;
    if (y->shape[i + 2] != expected)
      return refuse(kBadParam, "%s: y has %d in dimension %zu, not %d", name, y->shape[i + 2], i + 2, expected);
  }
  if (w->format == kCUDNN_TENSOR_NHWC && !(has_channels_last(*x) && has_channels_last(*y)))
    return refuse(kNotSupported, "%s: a filter by channels between tensors that are not", name);
  return 0;
}

int find_algorithms(const char* name, direction way, cudnnHandle_t handle, const cudnnTensorStruct* x,
                    const cudnnFilterStruct* w, const cudnnConvolutionStruct* desc, const cudnnTensorStruct* y,
                    int count, int* found, cudnnConvolutionFwdAlgoPerf_t* results) {
  const use in(name, handle);
  if (in.error()) return in.error();
  if (const int error = check_problem(name, x, w, desc, y)) return error;
  if (count <= 0) return refuse(kBadParam, "%s: %d results", name, count);
  const int half = x->dtype == kCUDNN_DATA_HALF || x->dtype == kCUDNN_DATA_BFLOAT16;
  const int math = half ? kCUDNN_TENSOR_OP_MATH : kCUDNN_DEFAULT_MATH;
  const cudnnConvolutionFwdAlgoPerf_t all[] = {{kRefused, kNotSupported, -1, 0, 1, math, {}},
                                               {kGreedy, 0, 0.1f, kGreedyBytes, 1, math, {}},
                                               {kFast, 0, 0.2f, kFastBytes, way == kForward, math, {}},
                                               {kPlain, 0, 0.3f, 0, 1, math, {}}};
  *found = std::min<int>(count, std::size(all));
  std::copy(all, all + *found, results);
  return 0;
}

double number_at(const void* scalar, bool is_double) {
  return is_double ? *static_cast<const double*>(scalar) : *static_cast<const float*>(scalar);
}

// `c` has its operands.
int convolve(const char* name, cudnnHandle_t handle, convolution c, const cudnnTensorStruct* x,
             const cudnnFilterStruct* w, const cudnnConvolutionStruct* desc, const cudnnTensorStruct* y,
             const void* alpha, const void* beta, int algo, void* workspace, size_t workspace_bytes) {
  const use in(name, handle);
  if (in.error()) return in.error();
  c.algo = algo, c.workspace = address_of(workspace);
  if (const int error = check_problem(name, x, w, desc, y)) return error;
  if (c.algo != kFast && c.algo != kPlain)
    return refuse(kNotSupported, "%s: algorithm %d, which the heuristics do not offer", name, c.algo);
  const size_t needed = c.algo == kFast ? kFastBytes : 0;
  if (workspace_bytes < needed || (needed && (!c.workspace || c.workspace % kWorkspaceAlignment)))
    return refuse(kBadParam, "%s: a workspace of %zu bytes at %p; %zu are wanted, aligned to 16", name, workspace_bytes,
                  reinterpret_cast<void*>(c.workspace), needed);
  for (const operand* each : {&c.x, &c.w, &c.y})
    if (!each->at || each->at % bytes_of(each->dtype)) return refuse(kBadParam, "%s: null, or not aligned", name);
  const bool is_double = x->dtype == kCUDNN_DATA_DOUBLE;
  c.alpha = number_at(alpha, is_double), c.beta = number_at(beta, is_double);
  c.desc = *desc;
  c.is_tf32 = x->dtype == kCUDNN_DATA_FLOAT && desc->math_type != kCUDNN_FMA_MATH;
  CUstream stream = nullptr;
  if (find_stream(name, handle->stream, handle->context, &stream)) return kExecutionFailed;
  if (stream->context != handle->context) return refuse(kBadParam, "%s: handle and stream are of two devices", name);
  return enqueue(name, stream,
                 {[c, stream] { return run(c, stream->context); }, false, {traced_work::kKernel, "cudnn"}})
             ? kExecutionFailed
             : 0;
}

template <typename T>
int create(const char* name, T** out) {
  if (const int fault = injected_fault(name)) return refuse(fault, "%s fails because CUDA_SIM_FAIL says so", name);
  *out = make<T>();
  return 0;
}

template <typename T>
int destroy(const char* name, T* made) {
  return registry<T>::all().retire(made) ? 0 : refuse(kBadParam, "%s: not one", name);
}

} // namespace
} // namespace sim

using namespace sim;

DNN_API cudnnCreate(cudnnHandle_t* handle) {
  CUcontext context = nullptr;
  if (enter("cudnnCreate", &context)) return kNotInitialized;
  if (const int error = refuse_unsafe("cudnnCreate")) return error;
  *handle = make<cudnnContext>();
  (*handle)->context = context;
  return 0;
}

DNN_API cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
  const use in("cudnnSetStream", handle);
  CUstream found = nullptr;
  if (in.error()) return in.error();
  if (find_stream("cudnnSetStream", stream, handle->context, &found)) return kBadParam;
  if (found->context != handle->context)
    return refuse(kBadParam, "cudnnSetStream: handle and stream are of two devices");
  handle->stream = stream;
  return 0;
}

extern "C" __attribute__((visibility("default"))) size_t cudnnGetCudartVersion() {
  return static_cast<size_t>(setting("CUDNN_CUDART", 12080));
}

extern "C" __attribute__((visibility("default"))) const char* cudnnGetErrorString(int) {
  return refusal().c_str();
}

// ---- descriptors ----

DNN_API cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* desc) {
  return create("cudnnCreateTensorDescriptor", desc);
}
DNN_API cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t desc) {
  return destroy("cudnnDestroyTensorDescriptor", desc);
}
DNN_API cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* desc) {
  return create("cudnnCreateFilterDescriptor", desc);
}
DNN_API cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t desc) {
  return destroy("cudnnDestroyFilterDescriptor", desc);
}
DNN_API cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* desc) {
  return create("cudnnCreateConvolutionDescriptor", desc);
}
DNN_API cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t desc) {
  return destroy("cudnnDestroyConvolutionDescriptor", desc);
}

DNN_API cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t desc, int dtype, int ndim, const int* shape,
                                   const int* strides) {
  constexpr char kName[] = "cudnnSetTensorNdDescriptor";
  if (!registry<cudnnTensorStruct>::all().has(desc)) return refuse(kBadParam, "%s: not a descriptor", kName);
  if (!bytes_of(dtype) || ndim < 4 || ndim > 8) return refuse(kBadParam, "%s(%d, %d dimensions)", kName, dtype, ndim);
  for (int i = 0; i < ndim; ++i)
    if (shape[i] <= 0 || strides[i] <= 0)
      return refuse(kBadParam, "%s: %d elements, %d apart, in dimension %d", kName, shape[i], strides[i], i);
  *desc = {dtype, shape_list(shape, shape + ndim), shape_list(strides, strides + ndim)};
  return 0;
}

DNN_API cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t desc, int dtype, int format, int ndim, const int* shape) {
  constexpr char kName[] = "cudnnSetFilterNdDescriptor";
  if (!registry<cudnnFilterStruct>::all().has(desc)) return refuse(kBadParam, "%s: not a descriptor", kName);
  if (!bytes_of(dtype) || ndim < 4 || ndim > 5 || format < 0 || format > kCUDNN_TENSOR_NHWC ||
      *std::min_element(shape, shape + ndim) <= 0)
    return refuse(kBadParam, "%s(%d, format %d, %d dimensions)", kName, dtype, format, ndim);
  *desc = {dtype, format, shape_list(shape, shape + ndim), shape_list(static_cast<size_t>(ndim))};
  int stride = 1;
  for (size_t i = desc->shape.size(); i-- > 0;) {
    size_t dim = i;
    if (format == kCUDNN_TENSOR_NHWC && i > 0) dim = i + 1 == desc->shape.size() ? 1 : i + 1;
    desc->strides[dim] = stride;
    stride *= shape[dim];
  }
  return 0;
}

DNN_API cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t desc, int ndim, const int* padding,
                                        const int* stride, const int* dilation, int mode, int compute_type) {
  constexpr char kName[] = "cudnnSetConvolutionNdDescriptor";
  if (!registry<cudnnConvolutionStruct>::all().has(desc)) return refuse(kBadParam, "%s: not a descriptor", kName);
  if (ndim < 2 || ndim > 3 || mode != kCUDNN_CROSS_CORRELATION || *std::min_element(padding, padding + ndim) < 0 ||
      *std::min_element(stride, stride + ndim) <= 0 || *std::min_element(dilation, dilation + ndim) <= 0)
    return refuse(kBadParam, "%s: %d dimensions, mode %d, or a number that is too small", kName, ndim, mode);
  desc->compute_type = compute_type;
  desc->padding.assign(padding, padding + ndim);
  desc->stride.assign(stride, stride + ndim);
  desc->dilation.assign(dilation, dilation + ndim);
  return 0;
}

DNN_API cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t desc, int groups) {
  if (!registry<cudnnConvolutionStruct>::all().has(desc) || groups <= 0)
    return refuse(kBadParam, "cudnnSetConvolutionGroupCount: not a descriptor, or %d groups", groups);
  desc->groups = groups;
  return 0;
}

DNN_API cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t desc, int math_type) {
  if (!registry<cudnnConvolutionStruct>::all().has(desc) || math_type < 0 || math_type > kCUDNN_FMA_MATH)
    return refuse(kBadParam, "cudnnSetConvolutionMathType: not a descriptor, or %d", math_type);
  desc->math_type = math_type;
  return 0;
}

// ---- convolutions ----

DNN_API cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                               cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t desc,
                                               cudnnTensorDescriptor_t y, int count, int* found,
                                               cudnnConvolutionFwdAlgoPerf_t* results) {
  return find_algorithms("cudnnGetConvolutionForwardAlgorithm_v7", kForward, handle, x, w, desc, y, count, found,
                         results);
}
DNN_API cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                    cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t desc,
                                                    cudnnTensorDescriptor_t x, int count, int* found,
                                                    cudnnConvolutionFwdAlgoPerf_t* results) {
  return find_algorithms("cudnnGetConvolutionBackwardDataAlgorithm_v7", kData, handle, x, w, desc, y, count, found,
                         results);
}
DNN_API cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                      cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t desc,
                                                      cudnnFilterDescriptor_t w, int count, int* found,
                                                      cudnnConvolutionFwdAlgoPerf_t* results) {
  return find_algorithms("cudnnGetConvolutionBackwardFilterAlgorithm_v7", kFilter, handle, x, w, desc, y, count, found,
                         results);
}

DNN_API cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc, const void* x,
                                cudnnFilterDescriptor_t w_desc, const void* w, cudnnConvolutionDescriptor_t desc,
                                int algo, void* workspace, size_t workspace_bytes, const void* beta,
                                cudnnTensorDescriptor_t y_desc, void* y) {
  convolution c{kForward, operand_of(x_desc, x), operand_of(w_desc, w), operand_of(y_desc, y), {}};
  return convolve("cudnnConvolutionForward", handle, std::move(c), x_desc, w_desc, desc, y_desc, alpha, beta, algo,
                  workspace, workspace_bytes);
}
DNN_API cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_desc,
                                     const void* w, cudnnTensorDescriptor_t y_desc, const void* y,
                                     cudnnConvolutionDescriptor_t desc, int algo, void* workspace,
                                     size_t workspace_bytes, const void* beta, cudnnTensorDescriptor_t x_desc,
                                     void* x) {
  convolution c{kData, operand_of(x_desc, x), operand_of(w_desc, w), operand_of(y_desc, y), {}};
  return convolve("cudnnConvolutionBackwardData", handle, std::move(c), x_desc, w_desc, desc, y_desc, alpha, beta, algo,
                  workspace, workspace_bytes);
}
DNN_API cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc,
                                       const void* x, cudnnTensorDescriptor_t y_desc, const void* y,
                                       cudnnConvolutionDescriptor_t desc, int algo, void* workspace,
                                       size_t workspace_bytes, const void* beta, cudnnFilterDescriptor_t w_desc,
                                       void* w) {
  convolution c{kFilter, operand_of(x_desc, x), operand_of(w_desc, w), operand_of(y_desc, y), {}};
  return convolve("cudnnConvolutionBackwardFilter", handle, std::move(c), x_desc, w_desc, desc, y_desc, alpha, beta,
                  algo, workspace, workspace_bytes);
}

// ---- biases ----

namespace {

using elementwise = int (*)(const operand& big, const operand& bias, double alpha, double beta, CUcontext context);

int enqueue_bias(const char* name, cudnnHandle_t handle, cudnnTensorDescriptor_t big_desc, const void* big,
                 cudnnTensorDescriptor_t bias_desc, const void* bias, const void* alpha, const void* beta,
                 elementwise compute) {
  const use in(name, handle);
  if (in.error()) return in.error();
  for (const auto* each : {big_desc, bias_desc})
    if (const int error = check_tensor(name, each)) return error;
  shape_list expected(big_desc->shape.size(), 1);
  expected[1] = big_desc->shape[1];
  if (bias_desc->shape != expected || bias_desc->dtype != big_desc->dtype)
    return refuse(kBadParam, "%s: the bias is not one of %d channels, of the same type", name, expected[1]);
  const bool is_double = big_desc->dtype == kCUDNN_DATA_DOUBLE;
  const double a = number_at(alpha, is_double), b = number_at(beta, is_double);
  CUstream stream = nullptr;
  if (find_stream(name, handle->stream, handle->context, &stream)) return kExecutionFailed;
  const operand to = operand_of(big_desc, big), values = operand_of(bias_desc, bias);
  const auto body = [=] { return compute(to, values, a, b, stream->context); };
  return enqueue(name, stream, {body, false, {traced_work::kKernel, "cudnn_bias"}}) ? kExecutionFailed : 0;
}

int outside() {
  return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "a bias or what it belongs to is outside of an allocation");
}

} // namespace

DNN_API cudnnAddTensor(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t a_desc, const void* a,
                       const void* beta, cudnnTensorDescriptor_t c_desc, void* c) {
  const auto add = [](const operand& big, const operand& bias, double alpha, double beta, CUcontext context) {
    char *to = big.find(context), *values = bias.find(context);
    if (!to || !values) return outside();
    write(big, to, [&](const shape_list& index, size_t, double before) {
      const char* at = values + static_cast<uint64_t>(index[1]) * uint64_t(bias.strides[1]) * bytes_of(bias.dtype);
      return alpha * load(at, bias.dtype) + (beta == 0 ? 0 : beta * before);
    });
    return 0;
  };
  return enqueue_bias("cudnnAddTensor", handle, c_desc, c, a_desc, a, alpha, beta, add);
}

DNN_API cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t y_desc,
                                     const void* y, const void* beta, cudnnTensorDescriptor_t bias_desc, void* bias) {
  const auto sum = [](const operand& big, const operand& bias, double alpha, double beta, CUcontext context) {
    char *from = big.find(context), *to = bias.find(context);
    if (!from || !to) return outside();
    std::vector<double> sums(static_cast<size_t>(big.shape[1]));
    write(big, from, [&](const shape_list& index, size_t, double value) {
      sums[static_cast<size_t>(index[1])] += value;
      return value;
    });
    write(bias, to, [&](const shape_list& index, size_t, double before) {
      return alpha * sums[static_cast<size_t>(index[1])] + (beta == 0 ? 0 : beta * before);
    });
    return 0;
  };
  return enqueue_bias("cudnnConvolutionBackwardBias", handle, y_desc, y, bias_desc, bias, alpha, beta, sum);
}
