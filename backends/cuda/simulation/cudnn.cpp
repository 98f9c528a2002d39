// The simulated libcudnn: convolutions, and the rules of the descriptors, handles, algorithms and workspaces that they are
// described by.
#include "dnn.h"

#include <algorithm>
#include <utility>

using numbers = std::vector<int64_t>;

struct cudnnTensorStruct {
  at::ScalarType dtype = at::ScalarType::Undefined;
  numbers shape, strides;
};

struct cudnnFilterStruct : cudnnTensorStruct {
  int format = 0;
};

struct cudnnConvolutionStruct {
  int compute_type = -1, math_type = 0, groups = 1;
  numbers padding, stride, dilation;
};

namespace sim {

at::ScalarType scalar_type_of(int dtype) {
  switch (dtype) {
    case kCUDNN_DATA_DOUBLE:
      return at::kDouble;
    case kCUDNN_DATA_FLOAT:
      return at::kFloat;
    case kCUDNN_DATA_HALF:
      return at::kHalf;
    case kCUDNN_DATA_BFLOAT16:
      return at::kBFloat16;
    default:
      return at::ScalarType::Undefined;
  }
}

double any_order(at::ScalarType dtype) {
  static std::atomic<unsigned> runs{0};
  const double last_bit = dtype == at::kDouble  ? 0x1p-52
                          : dtype == at::kFloat ? 0x1p-23
                          : dtype == at::kHalf  ? 0x1p-10
                                                : 0x1p-7;
  return ++runs % 2 ? 1 + last_bit : 1;
}

// ---- handles ----

use::use(const char* name, cudnnHandle_t handle) : name_(name), handle_(handle) {
  CUcontext context = nullptr;
  if (!registry<cudnnContext>::all().has(handle))
    error_ = refuse(kNotInitialized, "%s: not a handle of cudnnCreate", name);
  else if (handle->users++)
    error_ = refuse(kBadParam, "%s: another thread uses the handle", name);
  else if (const int fault = injected_fault(name))
    error_ = refuse(fault, "%s fails because CUDA_SIM_FAIL says so", name);
  else if (enter(name, &context))
    error_ = kExecutionFailed;
  else if (context != handle->context)
    error_ = refuse(kBadParam, "%s: the handle is of another device than the thread's context", name);
}

int use::enqueue(operation o) const {
  CUstream stream = nullptr;
  if (find_stream(name_, handle_->stream, handle_->context, &stream)) return kExecutionFailed;
  if (stream->context != handle_->context) return refuse(kBadParam, "%s: handle and stream are of two devices", name_);
  return sim::enqueue(stream, std::move(o)) ? kExecutionFailed : 0;
}

namespace {

// Each is the place of its result among x, w and y.
enum direction { kData, kFilter, kForward };

// What the heuristics answer, the fastest first: one that does not serve, one that wants more than there is, one whose sums are
// in any order, and one that needs nothing.
constexpr int kRefused = 5, kGreedy = 4, kFast = 1, kPlain = 0;
constexpr size_t kFastBytes = 1 << 12, kGreedyBytes = size_t{1} << 40;

// ---- tensors ----

operand operand_of(const cudnnTensorStruct& desc, const void* data) {
  return {desc.dtype, desc.shape, desc.strides, address_of(data)};
}

bool has_channels_last(const cudnnTensorStruct& t) {
  int64_t stride = 1;
  const auto is_next = [&](size_t dim) {
    const bool is_it = t.shape[dim] == 1 || t.strides[dim] == stride;
    stride *= t.shape[dim];
    return is_it;
  };
  bool all = is_next(1);
  for (size_t dim = t.shape.size() - 1; dim > 1; --dim) all = all && is_next(dim);
  return all;
}

// ---- checks ----

int check_tensor(const char* name, const cudnnTensorStruct* t) {
  return registry<cudnnTensorStruct>::all().has(const_cast<cudnnTensorStruct*>(t)) &&
                 t->dtype != at::ScalarType::Undefined
             ? 0
             : refuse(kBadParam, "%s: not a tensor descriptor that was set", name);
}

int check_problem(const char* name, const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                  const cudnnConvolutionStruct* desc, const cudnnTensorStruct* y) {
  for (const auto* each : {x, y})
    if (const int error = check_tensor(name, each)) return error;
  if (!registry<cudnnFilterStruct>::all().has(const_cast<cudnnFilterStruct*>(w)) || w->shape.empty() ||
      !registry<cudnnConvolutionStruct>::all().has(const_cast<cudnnConvolutionStruct*>(desc)) || desc->padding.empty())
    return refuse(kBadParam, "%s: not descriptors of a filter and a convolution that were set", name);
  const size_t dims = desc->padding.size();
  if (x->shape.size() != dims + 2 || w->shape.size() != dims + 2 || y->shape.size() != dims + 2)
    return refuse(kBadParam, "%s: %zu dimensions of x, w, y or the convolution are another number", name, dims);
  if (x->dtype != w->dtype || x->dtype != y->dtype) return refuse(kNotSupported, "%s: several types", name);
  if ((x->dtype == at::kDouble ? kCUDNN_DATA_DOUBLE : kCUDNN_DATA_FLOAT) != desc->compute_type)
    return refuse(kNotSupported, "%s: %s is not computed in %d", name, c10::toString(x->dtype), desc->compute_type);
  if (x->shape[0] != y->shape[0] || x->shape[1] != w->shape[1] * desc->groups || y->shape[1] != w->shape[0] ||
      w->shape[0] % desc->groups)
    return refuse(kBadParam, "%s: %ld and %ld channels, in %d groups, of a filter of %ld and %ld", name, x->shape[1],
                  y->shape[1], desc->groups, w->shape[1], w->shape[0]);
  for (size_t i = 0; i < dims; ++i) {
    const int64_t reach = desc->dilation[i] * (w->shape[i + 2] - 1) + 1;
    const int64_t expected = (x->shape[i + 2] + 2 * desc->padding[i] - reach) / desc->stride[i] + 1;
    if (y->shape[i + 2] != expected)
      return refuse(kBadParam, "%s: y has %ld in dimension %zu, not %ld", name, y->shape[i + 2], i + 2, expected);
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
  const bool half = x->dtype == at::kHalf || x->dtype == at::kBFloat16;
  const int math = half ? kCUDNN_TENSOR_OP_MATH : kCUDNN_DEFAULT_MATH;
  const cudnnConvolutionFwdAlgoPerf_t all[] = {{kRefused, kNotSupported, -1, 0, 1, math, {}},
                                               {kGreedy, 0, 0.1f, kGreedyBytes, 1, math, {}},
                                               {kFast, 0, 0.2f, kFastBytes, way == kForward, math, {}},
                                               {kPlain, 0, 0.3f, 0, 1, math, {}}};
  *found = std::min<int>(count, std::size(all));
  std::copy(all, all + *found, results);
  return 0;
}

// ---- a convolution ----

at::Tensor convolved(direction way, const cudnnConvolutionStruct& c, const tensors& t) {
  const numbers none(c.padding.size());
  if (way == kForward) return at::convolution(t[0], t[1], {}, c.stride, c.padding, c.dilation, false, none, c.groups);
  const std::array<bool, 3> wanted{way == kData, way == kFilter, false};
  const auto [of_x, of_w, of_bias] = at::convolution_backward(t[2], t[0], t[1], c10::nullopt, c.stride, c.padding,
                                                              c.dilation, false, none, c.groups, wanted);
  return way == kData ? of_x : of_w;
}

int convolve(const char* name, direction way, cudnnHandle_t handle, const cudnnTensorStruct* x, const void* x_data,
             const cudnnFilterStruct* w, const void* w_data, const cudnnConvolutionStruct* desc,
             const cudnnTensorStruct* y, const void* y_data, const void* alpha, const void* beta, int algo,
             void* workspace, size_t workspace_bytes) {
  const use in(name, handle);
  if (in.error()) return in.error();
  if (const int error = check_problem(name, x, w, desc, y)) return error;
  if (algo != kFast && algo != kPlain)
    return refuse(kNotSupported, "%s: algorithm %d, which the heuristics do not offer", name, algo);
  const size_t needed = algo == kFast ? kFastBytes : 0;
  if (workspace_bytes < needed || (needed && (!workspace || address_of(workspace) % kWorkspaceAlignment)))
    return refuse(kBadParam, "%s: a workspace of %zu bytes at %p; %zu are wanted, aligned to 16", name, workspace_bytes,
                  workspace, needed);
  for (const void* each : {x_data, w_data, y_data})
    if (!each || address_of(each) % at::elementSize(x->dtype))
      return refuse(kBadParam, "%s: null, or not aligned", name);
  const bool is_double = x->dtype == at::kDouble,
             is_tf32 = x->dtype == at::kFloat && desc->math_type != kCUDNN_FMA_MATH;
  const double times = number_at(alpha, is_double), before = number_at(beta, is_double);
  const auto run = [=, c = *desc](const tensors& t) {
    tensors wide;
    for (const at::Tensor& each : t) wide.push_back(is_tf32 ? to_tf32(each.to(at::kDouble)) : each.to(at::kDouble));
    const double order = algo == kFast && way != kForward ? any_order(t[0].scalar_type()) : 1;
    write(t[way], convolved(way, c, wide), times * order, before);
  };
  return in.enqueue({name,
                     "cudnn",
                     {operand_of(*x, x_data), operand_of(*w, w_data), operand_of(*y, y_data)},
                     address_of(workspace),
                     needed,
                     run});
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
  const at::ScalarType type = scalar_type_of(dtype);
  if (type == at::ScalarType::Undefined || ndim < 4 || ndim > 8)
    return refuse(kBadParam, "%s(%d, %d dimensions)", kName, dtype, ndim);
  for (int i = 0; i < ndim; ++i)
    if (shape[i] <= 0 || strides[i] <= 0)
      return refuse(kBadParam, "%s: %d elements, %d apart, in dimension %d", kName, shape[i], strides[i], i);
  *desc = {type, numbers(shape, shape + ndim), numbers(strides, strides + ndim)};
  return 0;
}

DNN_API cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t desc, int dtype, int format, int ndim, const int* shape) {
  constexpr char kName[] = "cudnnSetFilterNdDescriptor";
  if (!registry<cudnnFilterStruct>::all().has(desc)) return refuse(kBadParam, "%s: not a descriptor", kName);
  const at::ScalarType type = scalar_type_of(dtype);
  if (type == at::ScalarType::Undefined || ndim < 4 || ndim > 5 || format < 0 || format > kCUDNN_TENSOR_NHWC ||
      *std::min_element(shape, shape + ndim) <= 0)
    return refuse(kBadParam, "%s(%d, format %d, %d dimensions)", kName, dtype, format, ndim);
  *desc = {{type, numbers(shape, shape + ndim), numbers(static_cast<size_t>(ndim))}, format};
  int64_t stride = 1;
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
  return convolve("cudnnConvolutionForward", kForward, handle, x_desc, x, w_desc, w, desc, y_desc, y, alpha, beta, algo,
                  workspace, workspace_bytes);
}
DNN_API cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_desc,
                                     const void* w, cudnnTensorDescriptor_t y_desc, const void* y,
                                     cudnnConvolutionDescriptor_t desc, int algo, void* workspace,
                                     size_t workspace_bytes, const void* beta, cudnnTensorDescriptor_t x_desc,
                                     void* x) {
  return convolve("cudnnConvolutionBackwardData", kData, handle, x_desc, x, w_desc, w, desc, y_desc, y, alpha, beta,
                  algo, workspace, workspace_bytes);
}
DNN_API cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc,
                                       const void* x, cudnnTensorDescriptor_t y_desc, const void* y,
                                       cudnnConvolutionDescriptor_t desc, int algo, void* workspace,
                                       size_t workspace_bytes, const void* beta, cudnnFilterDescriptor_t w_desc,
                                       void* w) {
  return convolve("cudnnConvolutionBackwardFilter", kFilter, handle, x_desc, x, w_desc, w, desc, y_desc, y, alpha, beta,
                  algo, workspace, workspace_bytes);
}

// ---- biases ----

namespace {

using computation = void (*)(const tensors& with_bias, double alpha, double beta);

int enqueue_bias(const char* name, cudnnHandle_t handle, cudnnTensorDescriptor_t big_desc, const void* big,
                 cudnnTensorDescriptor_t bias_desc, const void* bias, const void* alpha, const void* beta,
                 computation compute) {
  const use in(name, handle);
  if (in.error()) return in.error();
  for (const auto* each : {big_desc, bias_desc})
    if (const int error = check_tensor(name, each)) return error;
  numbers expected(big_desc->shape.size(), 1);
  expected[1] = big_desc->shape[1];
  if (bias_desc->shape != expected || bias_desc->dtype != big_desc->dtype)
    return refuse(kBadParam, "%s: the bias is not one of %ld channels, of the same type", name, expected[1]);
  const bool is_double = big_desc->dtype == at::kDouble;
  const double times = number_at(alpha, is_double), before = number_at(beta, is_double);
  return in.enqueue(
      {name, "cudnn_bias", {operand_of(*big_desc, big), operand_of(*bias_desc, bias)}, 0, 0, [=](const tensors& t) {
         compute(t, times, before);
       }});
}

} // namespace

DNN_API cudnnAddTensor(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t a_desc, const void* a,
                       const void* beta, cudnnTensorDescriptor_t c_desc, void* c) {
  return enqueue_bias(
      "cudnnAddTensor", handle, c_desc, c, a_desc, a, alpha, beta,
      [](const tensors& t, double times, double before) { write(t[0], t[1].to(at::kDouble), times, before); });
}

DNN_API cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t y_desc,
                                     const void* y, const void* beta, cudnnTensorDescriptor_t bias_desc, void* bias) {
  return enqueue_bias("cudnnConvolutionBackwardBias", handle, y_desc, y, bias_desc, bias, alpha, beta,
                      [](const tensors& t, double times, double before) {
                        write(t[1], t[0].to(at::kDouble).sum_to_size(t[1].sizes()), times, before);
                      });
}
