#include "convolution.h"

#include <algorithm>
#include <array>
#include <limits>

#include "cudnn.h"
#include "device.h"
#include "kernel.h"
#include "stream.h"

namespace xcuda {
namespace {

// What an algorithm wants is taken from the core's cache.
constexpr size_t kMaxWorkspaceBytes = 1 << 30;
constexpr int kMinDims = 4, kMaxDims = 5; // those of two and three dimensions; one is made two by PyTorch

constexpr library_dtypes cudnn_dtype_of{kCUDNN_DATA_HALF, kCUDNN_DATA_BFLOAT16, kCUDNN_DATA_FLOAT, kCUDNN_DATA_DOUBLE};

// ---- tensors ----

using numbers = std::array<int, kMaxDims>;

// Row after row, or with the channels last. What lies otherwise, and what has more elements than cuDNN counts, is none.
struct layout {
  int ndim = 0, format = kNone;
  numbers shape{}, strides{};
};

bool lay_out(const tb_tensor& t, int format, layout* out) {
  *out = {t.ndim, format, {}, {}};
  int64_t stride = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    int dim = i;
    if (format == kCUDNN_TENSOR_NHWC && i > 0) dim = i == t.ndim - 1 ? 1 : i + 1;
    if (t.shape[dim] != 1 && t.strides[dim] != stride) return false;
    out->shape[dim] = static_cast<int>(t.shape[dim]);
    out->strides[dim] = static_cast<int>(stride);
    stride *= t.shape[dim];
    if (stride > std::numeric_limits<int>::max()) return false;
  }
  return true;
}

// ---- problems ----

enum direction { kForward, kData, kFilter };

// One of the tensors x, w, y of a convolution is computed from the others. The output of a transposed one is x.
struct problem {
  int32_t device = 0;
  int allowed = 0; // TB_MATH_*
  direction way = kForward;
  int dtype = kNone, groups = 0;
  layout x, w, y;
  numbers padding{}, stride{}, dilation{};

  // All of it.
  std::array<int, 9 + 9 * kMaxDims> key() const {
    std::array<int, 9 + 9 * kMaxDims> all{device, allowed, way, dtype, groups, x.ndim, x.format, w.format, y.format};
    auto next = all.begin() + 9;
    for (const numbers* each : {&x.shape, &w.shape, &y.shape, &padding, &stride, &dilation})
      next = std::copy(each->begin(), each->end(), next);
    return all;
  }
};

// By channels all, or the weight is not.
bool lay_out(const tb_tensor& x, const tb_tensor& w, const tb_tensor& y, problem* p) {
  for (int format : {kCUDNN_TENSOR_NCHW, kCUDNN_TENSOR_NHWC})
    if (lay_out(x, format, &p->x) && lay_out(w, format, &p->w) && lay_out(y, format, &p->y)) return true;
  const auto any = [](const tb_tensor& t, layout* out) {
    return lay_out(t, kCUDNN_TENSOR_NCHW, out) || lay_out(t, kCUDNN_TENSOR_NHWC, out);
  };
  return lay_out(w, kCUDNN_TENSOR_NCHW, &p->w) && any(x, &p->x) && any(y, &p->y);
}

bool set(const tb_arg& list, bool may_be_0, numbers* out) {
  for (uint32_t i = 0; i < list.length; ++i) {
    const int64_t value = static_cast<const int64_t*>(list.v.p)[i];
    if (value < !may_be_0 || value > std::numeric_limits<int>::max()) return false;
    (*out)[i] = static_cast<int>(value);
  }
  return true;
}

// What is padded at the end, with output_padding, may be more than a stride: cuDNN has no such convolution.
bool has_all_places(const problem& p) {
  for (int i = 2; i < p.x.ndim; ++i) {
    const int64_t reach = int64_t{p.dilation[i - 2]} * (p.w.shape[i] - 1) + 1;
    if ((p.x.shape[i] + 2 * int64_t{p.padding[i - 2]} - reach) / p.stride[i - 2] + 1 != p.y.shape[i]) return false;
  }
  return true;
}

// `rest` are the arguments from stride on: stride, padding, dilation, transposed, output_padding, groups.
bool describe(const tb_kernel_context& context, direction way, const tb_tensor& x, const tb_tensor& w,
              const tb_tensor& y, const tb_arg* rest, problem* p) {
  p->device = context.device;
  p->allowed = static_cast<int>(context.flags & (TB_MATH_TF32_CONV | TB_MATH_DETERMINISTIC));
  p->way = way;
  p->dtype = cudnn_dtype_of(x.dtype);
  p->groups = static_cast<int>(rest[5].v.i);
  return x.ndim >= kMinDims && x.ndim <= kMaxDims && cudnn_dtype_of(w.dtype) == p->dtype &&
         cudnn_dtype_of(y.dtype) == p->dtype && lay_out(x, w, y, p) && set(rest[0], false, &p->stride) &&
         set(rest[1], true, &p->padding) && set(rest[2], false, &p->dilation) && has_all_places(*p);
}

// ---- plans ----

class tensor_descriptor {
 public:
  tensor_descriptor() = default;
  tensor_descriptor(const tensor_descriptor&) = delete;
  tensor_descriptor& operator=(const tensor_descriptor&) = delete;
  ~tensor_descriptor() {
    if (desc_) dnn.DestroyTensorDescriptor(desc_);
  }
  // Once.
  cudnnStatus_t make(int dtype, const layout& l) {
    const cudnnStatus_t error = dnn.CreateTensorDescriptor(&desc_);
    return error ? error : dnn.SetTensorNdDescriptor(desc_, dtype, l.ndim, l.shape.data(), l.strides.data());
  }
  operator cudnnTensorDescriptor_t() const {
    return desc_;
  }

 private:
  cudnnTensorDescriptor_t desc_ = nullptr;
};

// The descriptors and the algorithm for one problem. One thread.
class plan {
 public:
  plan() = default;
  plan(const plan&) = delete;
  plan& operator=(const plan&) = delete;
  ~plan() {
    if (w_) dnn.DestroyFilterDescriptor(w_);
    if (desc_) dnn.DestroyConvolutionDescriptor(desc_);
  }

  // Once.
  result make(cudnnHandle_t handle, const problem& p) {
    const bool is_double = p.dtype == kCUDNN_DATA_DOUBLE, is_float = p.dtype == kCUDNN_DATA_FLOAT;
    is_double_ = is_double;
    way_ = p.way;
    // The default is TF32 where the GPU has it.
    const int math = is_float && !(p.allowed & TB_MATH_TF32_CONV) ? kCUDNN_FMA_MATH : kCUDNN_DEFAULT_MATH;
    const auto ndim = p.x.ndim - 2;
    cudnnStatus_t error = x_.make(p.dtype, p.x);
    if (!error) error = y_.make(p.dtype, p.y);
    if (!error) error = dnn.CreateFilterDescriptor(&w_);
    if (!error) error = dnn.SetFilterNdDescriptor(w_, p.dtype, p.w.format, p.w.ndim, p.w.shape.data());
    if (!error) error = dnn.CreateConvolutionDescriptor(&desc_);
    if (!error)
      error =
          dnn.SetConvolutionNdDescriptor(desc_, ndim, p.padding.data(), p.stride.data(), p.dilation.data(),
                                         kCUDNN_CROSS_CORRELATION, is_double ? kCUDNN_DATA_DOUBLE : kCUDNN_DATA_FLOAT);
    if (!error) error = dnn.SetConvolutionGroupCount(desc_, p.groups);
    if (!error) error = dnn.SetConvolutionMathType(desc_, is_float || is_double ? math : kCUDNN_TENSOR_OP_MATH);
    if (!error) error = choose(handle, p.allowed & TB_MATH_DETERMINISTIC);
    if (!error && !is_chosen_) return refuse();
    if (!error && !is_float) error = dnn.SetConvolutionMathType(desc_, choice_.mathType);
    return check_cudnn(error, "cudnnGetConvolutionAlgorithm_v7");
  }

  // What it computes is one of the three.
  result run(cudnnHandle_t handle, const tb_kernel_context& context, const char* x, const char* w, const char* y) {
    const factor one(1, is_double_), zero(0, is_double_);
    void* workspace = nullptr;
    if (result r = allocate_workspace(context, choice_.memory, &workspace); !r.ok()) return r;
    switch (way_) {
      case kForward:
        return check_cudnn(dnn.ConvolutionForward(handle, one.pointer(), x_, x, w_, w, desc_, choice_.algo, workspace,
                                                  choice_.memory, zero.pointer(), y_, const_cast<char*>(y)),
                           "cudnnConvolutionForward");
      case kData:
        return check_cudnn(
            dnn.ConvolutionBackwardData(handle, one.pointer(), w_, w, y_, y, desc_, choice_.algo, workspace,
                                        choice_.memory, zero.pointer(), x_, const_cast<char*>(x)),
            "cudnnConvolutionBackwardData");
      default:
        return check_cudnn(
            dnn.ConvolutionBackwardFilter(handle, one.pointer(), x_, x, y_, y, desc_, choice_.algo, workspace,
                                          choice_.memory, zero.pointer(), w_, const_cast<char*>(w)),
            "cudnnConvolutionBackwardFilter");
    }
  }

 private:
  // The best one, by cuDNN's own estimate, that is allowed.
  cudnnStatus_t choose(cudnnHandle_t handle, bool deterministic) {
    constexpr int kMost = 16;
    cudnnConvolutionFwdAlgoPerf_t results[kMost];
    int found = 0;
    cudnnStatus_t error = 0;
    if (way_ == kForward)
      error = dnn.GetConvolutionForwardAlgorithm_v7(handle, x_, w_, desc_, y_, kMost, &found, results);
    else if (way_ == kData)
      error = dnn.GetConvolutionBackwardDataAlgorithm_v7(handle, w_, y_, desc_, x_, kMost, &found, results);
    else
      error = dnn.GetConvolutionBackwardFilterAlgorithm_v7(handle, x_, y_, desc_, w_, kMost, &found, results);
    const auto is_allowed = [deterministic](const cudnnConvolutionFwdAlgoPerf_t& each) {
      return each.status == kCUDNN_STATUS_SUCCESS && each.memory <= kMaxWorkspaceBytes &&
             (!deterministic || each.determinism == kCUDNN_DETERMINISTIC);
    };
    const auto* best = std::find_if(results, results + found, is_allowed);
    is_chosen_ = !error && best != results + found;
    if (is_chosen_) choice_ = *best;
    return error;
  }

  bool is_double_ = false, is_chosen_ = false;
  direction way_ = kForward;
  tensor_descriptor x_, y_;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t desc_ = nullptr;
  cudnnConvolutionFwdAlgoPerf_t choice_{};
};

// ---- kernels ----

// One kernel's call, on a thread that has the device's context.
class call {
 public:
  explicit call(const tb_kernel_context& context)
      : context_(context), scope_(device_at(context.device)), r_(scope_.failure()) {
    if (r_.ok()) r_ = cudnn_handle(context.device, handle_of(context.stream), &handle_);
  }

  // Another tensor to compute. Nothing is enqueued yet.
  void add(direction way, const tb_tensor& x, const tb_tensor& w, const tb_tensor& y, const tb_arg* rest) {
    problem p;
    if (!r_.ok()) return;
    if (!describe(context_, way, x, w, y, rest, &p)) {
      r_ = refuse();
      return;
    }
    std::shared_ptr<plan> found;
    r_ = find_plan(p.key(), &found, [&](plan& made) { return made.make(handle_, p); });
    steps_.push_back({std::move(found), data_of(x), data_of(w), data_of(y)});
  }

  // The bias is added to an output, or is the sum of a gradient.
  void add_bias(const tb_tensor& output, const tb_tensor& bias, bool is_gradient) {
    if (!r_.ok()) return;
    layout l, of_bias{output.ndim, kCUDNN_TENSOR_NCHW, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}};
    const int dtype = cudnn_dtype_of(output.dtype);
    if (cudnn_dtype_of(bias.dtype) != dtype || (bias.shape[0] != 1 && bias.strides[0] != 1) ||
        (!lay_out(output, kCUDNN_TENSOR_NCHW, &l) && !lay_out(output, kCUDNN_TENSOR_NHWC, &l))) {
      r_ = refuse();
      return;
    }
    of_bias.shape[1] = of_bias.strides[0] = l.shape[1];
    tensor_descriptor big, small;
    cudnnStatus_t error = big.make(dtype, l);
    if (!error) error = small.make(dtype, of_bias);
    const bool is_double = dtype == kCUDNN_DATA_DOUBLE;
    const factor one(1, is_double), zero(0, is_double);
    char *to = const_cast<char*>(data_of(output)), *values = const_cast<char*>(data_of(bias));
    if (!error)
      error = is_gradient ? dnn.ConvolutionBackwardBias(handle_, one.pointer(), big, to, zero.pointer(), small, values)
                          : dnn.AddTensor(handle_, one.pointer(), small, values, one.pointer(), big, to);
    r_ = check_cudnn(error, is_gradient ? "cudnnConvolutionBackwardBias" : "cudnnAddTensor");
  }

  void run() {
    for (const step& each : steps_)
      if (r_.ok()) r_ = each.how->run(handle_, context_, each.x, each.w, each.y);
  }

  // After something was enqueued no other kernel source may follow.
  void settle() {
    if (r_.status == TB_STATUS_UNSUPPORTED) r_.status = TB_STATUS_INTERNAL;
  }

  const result& outcome() const {
    return r_;
  }

 private:
  struct step {
    std::shared_ptr<plan> how;
    const char *x, *w, *y;
  };
  const tb_kernel_context& context_;
  const context_scope scope_;
  result r_;
  cudnnHandle_t handle_ = nullptr;
  std::vector<step> steps_;
};

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups), out
result convolution(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  const tb_tensor &input = tensor_of(args[0]), &weight = tensor_of(args[1]), &output = tensor_of(args[9]);
  const bool has_bias = args[2].tag == TB_ARG_TENSOR;
  call c(*context);
  if (has_bias && cudnn_dtype_of(tensor_of(args[2]).dtype) != cudnn_dtype_of(output.dtype)) return refuse();
  if (args[6].v.i)
    c.add(kData, output, weight, input, args + 3);
  else
    c.add(kForward, input, weight, output, args + 3);
  c.run();
  if (!has_bias || !c.outcome().ok()) return c.outcome();
  c.add_bias(output, tensor_of(args[2]), false);
  c.settle();
  return c.outcome();
}

// (grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask), three
// gradients
result convolution_backward(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  const tb_tensor &output = tensor_of(args[0]), &input = tensor_of(args[1]), &weight = tensor_of(args[2]);
  const bool is_transposed = args[6].v.i;
  call c(*context);
  if (args[10].tag == TB_ARG_TENSOR && is_transposed) c.add(kForward, output, weight, tensor_of(args[10]), args + 3);
  if (args[10].tag == TB_ARG_TENSOR && !is_transposed) c.add(kData, tensor_of(args[10]), weight, output, args + 3);
  if (args[11].tag == TB_ARG_TENSOR)
    c.add(kFilter, is_transposed ? output : input, tensor_of(args[11]), is_transposed ? input : output, args + 3);
  if (args[12].tag == TB_ARG_TENSOR) c.add_bias(output, tensor_of(args[12]), true);
  if (!c.outcome().ok()) return c.outcome();
  c.run();
  c.settle();
  return c.outcome();
}

} // namespace

void add_convolution_kernels(std::vector<const tb_kernel*>* out_kernels) {
  static const tb_kernel kernels[] = {kernel<convolution>("aten::convolution_overrideable"),
                                      kernel<convolution_backward>("aten::convolution_backward_overrideable")};
  const bool offered = load_cudnn();
  for (const tb_kernel& each : kernels)
    if (offered) out_kernels->push_back(&each);
}

} // namespace xcuda
