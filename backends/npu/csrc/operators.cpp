#include "operators.h"

#include <cmath>
#include <vector>

#include "common/boundary.h"
#include "parameters.h"
#include "stream.h"

namespace npu {
namespace {

// ---- what dtypes operators take ----

struct dtypes {
  uint64_t words[TB_DTYPE_MASK_WORDS];
};

constexpr dtypes set_of(std::initializer_list<tb_dtype> all) {
  dtypes d{};
  for (const tb_dtype& t : all) d.words[TB_DTYPE_MASK_WORD(t.code, t.bits)] |= TB_DTYPE_MASK_FLAG(t.code, t.bits);
  return d;
}

constexpr tb_dtype kHalf{TB_DTYPE_FLOAT, 16, 1}, kFloat{TB_DTYPE_FLOAT, 32, 1}, kDouble{TB_DTYPE_FLOAT, 64, 1},
    kBfloat16{TB_DTYPE_BFLOAT, 16, 1}, kInt8{TB_DTYPE_INT, 8, 1}, kInt16{TB_DTYPE_INT, 16, 1},
    kInt32{TB_DTYPE_INT, 32, 1}, kInt64{TB_DTYPE_INT, 64, 1}, kUint8{TB_DTYPE_UINT, 8, 1}, kBool{TB_DTYPE_BOOL, 8, 1};

// Indices and masks are among a kernel's tensors.
constexpr dtypes kAny = set_of({kHalf, kBfloat16, kFloat, kDouble, kInt8, kInt16, kInt32, kInt64, kUint8, kBool});
constexpr dtypes kFloats = set_of({kHalf, kBfloat16, kFloat, kInt32, kInt64, kUint8, kBool});
constexpr dtypes kCube = set_of({kHalf, kBfloat16, kFloat}); // what the matrix unit multiplies

// ---- rows ----

using body = void (*)(const kernel_call&);

template <body Body>
result call_kernel(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  acl_stream stream = nullptr;
  if (result r = handle_of(context->device, context->stream, &stream); !r.ok()) return r;
  operator_calls calls(context, stream);
  Body({args, calls, context->flags});
  return calls.outcome();
}

template <fixed_string Name, typename... Parameters>
void call_operator(const kernel_call& k) {
  k.calls.launch<Name>(Parameters::make(k)...);
}

struct row {
  tb_kernel kernel;
  bool available;
};

template <fixed_string... Names>
bool has_all() {
  return (... && (operator_called<Names>().plan && operator_called<Names>().run));
}

// A kernel that is one call of aclnn<Name>.
template <fixed_string Name, typename... Parameters>
row one(const char* op, const dtypes& mask = kAny, uint32_t flags = 0) {
  return {
      {sizeof(tb_kernel), op, boundary<call_kernel<call_operator<Name, Parameters...>>>::call, flags, 0, mask.words},
      has_all<Name>()};
}

// A kernel that makes calls of all these.
template <body Body, fixed_string... Names>
row several(const char* op, const dtypes& mask = kAny, uint32_t flags = 0) {
  return {{sizeof(tb_kernel), op, boundary<call_kernel<Body>>::call, flags, 0, mask.words}, has_all<Names...>()};
}

constexpr uint32_t kMixed = TB_KERNEL_MIXED_DTYPES;
constexpr uint32_t kMixedAndNumbers = TB_KERNEL_MIXED_DTYPES | TB_KERNEL_NUMBERS;
constexpr uint32_t kMath = TB_KERNEL_MATH_FLAGS;

using product_math = cube_math<TB_MATH_TF32_MATMUL>;
using conv_math = cube_math<TB_MATH_TF32_CONV>;

// ---- kernels of several calls ----

// (self, other, alpha), out: aclnnX and, with a number for other, aclnnXs
template <fixed_string Tensors, fixed_string WithNumber>
void scaled_sum(const kernel_call& k) {
  if (k.is_tensor(0) && !k.is_tensor(1))
    return call_operator<WithNumber, tensor<0>, scalar<1>, scalar<2>, tensor<3>>(k);
  call_operator<Tensors, operand<0, 3>, operand<1, 3>, scalar<2>, tensor<3>>(k);
}

// (self, other), out
template <fixed_string Tensors, fixed_string WithNumber>
void binary(const kernel_call& k) {
  if (k.is_tensor(0) && !k.is_tensor(1)) return call_operator<WithNumber, tensor<0>, scalar<1>, tensor<2>>(k);
  call_operator<Tensors, operand<0, 2>, operand<1, 2>, tensor<2>>(k);
}

// (grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, mask), three gradients
void convolution_backward(const kernel_call& k) {
  const tb_tensor& weight = k.tensor(2);
  const int64_t bias_size = k.args[6].v.i ? weight.shape[1] * k.args[8].v.i : weight.shape[0];
  k.calls.launch<"ConvolutionBackward">(
      tensor<0>::make(k), tensor<1>::make(k), tensor<2>::make(k), k.calls.ints(&bias_size, 1), ints<3>::make(k),
      ints<4>::make(k), ints<5>::make(k), boolean<6>::make(k), ints<7>::make(k), integer<8>::make(k), mask<9>::make(k),
      conv_math::make(k), tensor<10>::make(k), tensor<11>::make(k), tensor<12>::make(k));
}

// Places are int64 in PyTorch and int32 in CANN.
void max_pool(const kernel_call& k) {
  const tb_tensor places = k.calls.temporary(k.tensor(7), kInt32);
  k.calls.launch<"MaxPool2dWithIndices">(
      tensor<0>::make(k), height_and_width<1>::make(k), height_and_width<2, 1>::make(k), height_and_width<3>::make(k),
      height_and_width<4>::make(k), boolean<5>::make(k), tensor<6>::make(k), k.calls.tensor(places));
  k.calls.launch<"InplaceCopy">(tensor<7>::make(k), k.calls.tensor(places));
}

void max_pool_backward(const kernel_call& k) {
  const tb_tensor places = k.calls.temporary(k.tensor(7), kInt32);
  k.calls.launch<"InplaceCopy">(k.calls.tensor(places), tensor<7>::make(k));
  k.calls.launch<"MaxPool2dWithIndicesBackward">(tensor<0>::make(k), tensor<1>::make(k), k.calls.tensor(places),
                                                 height_and_width<2>::make(k), height_and_width<3, 2>::make(k),
                                                 height_and_width<4>::make(k), height_and_width<5>::make(k),
                                                 boolean<6>::make(k), tensor<8>::make(k));
}

// CANN wants a weight for every class.
template <int Weight, int Scores>
struct class_weights {
  static acl_tensor* make(const kernel_call& k) {
    if (k.is_tensor(Weight)) return tensor<Weight>::make(k);
    const tb_tensor& scores = k.tensor(Scores);
    tb_tensor one_each = scores; // of the last dimension, which counts the classes
    one_each.ndim = 1;
    one_each.shape = scores.shape + scores.ndim - 1;
    const tb_tensor ones = k.calls.temporary(one_each, scores.dtype);
    acl_tensor* made = k.calls.tensor(ones);
    k.calls.launch<"InplaceFillScalar">(made, k.calls.scalar({number::integer, 1, 1}));
    return made;
  }
};

void nll_loss(const kernel_call& k) {
  call_operator<"NLLLoss", tensor<0>, tensor<1>, class_weights<2, 0>, integer<3>, integer<4>, tensor<5>, tensor<6>>(k);
}

void nll_loss_backward(const kernel_call& k) {
  call_operator<"NLLLossBackward", tensor<0>, tensor<1>, tensor<2>, class_weights<3, 1>, integer<4>, integer<5>,
                tensor<6>, tensor<7>>(k);
}

// (self, dim?, keepdim), out: without a dim of all elements, which are one row
template <fixed_string Name>
void place_of_best(const kernel_call& k) {
  if (k.args[1].tag != TB_ARG_NONE) return call_operator<Name, tensor<0>, integer<1>, boolean<2>, tensor<3>>(k);
  tb_tensor row = k.tensor(0);
  int64_t count = 1, stride = 1;
  for (int32_t i = 0; i < row.ndim; ++i) count *= row.shape[i];
  row.ndim = 1;
  row.shape = &count;
  row.strides = &stride;
  tb_tensor place = k.tensor(3); // without dimensions, or with as many of one as the row had
  place.ndim = 0;
  k.calls.launch<Name>(k.calls.tensor(row), int64_t{0}, false, k.calls.tensor(place));
}

// (scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval): all on the device
void update_scale(const kernel_call& k) {
  operator_calls& c = k.calls;
  const tb_tensor &scale = k.tensor(0), &tracker = k.tensor(1), &found = k.tensor(2);
  const auto whole = [&](int64_t n) { return c.scalar({number::integer, n, static_cast<double>(n)}); };
  acl_tensor* is_found = c.tensor(c.temporary(found, kBool));
  acl_tensor* is_due = c.tensor(c.temporary(found, kBool));
  acl_tensor* is_finite = c.tensor(c.temporary(found, kBool));
  acl_tensor* steps = c.tensor(c.temporary(tracker, tracker.dtype));
  acl_tensor* none = c.tensor(c.temporary(tracker, tracker.dtype));
  acl_tensor* grown = c.tensor(c.temporary(scale, scale.dtype));
  acl_tensor* reduced = c.tensor(c.temporary(scale, scale.dtype));
  acl_tensor *scale_out = tensor<0>::make(k), *tracker_out = tensor<1>::make(k);
  c.launch<"GtScalar">(tensor<2>::make(k), whole(0), is_found);
  c.launch<"Adds">(tracker_out, whole(1), whole(1), steps);
  c.launch<"EqScalar">(steps, scalar<5>::make(k), is_due);
  c.launch<"InplaceFillScalar">(none, whole(0));
  c.launch<"Muls">(scale_out, scalar<3>::make(k), grown);
  c.launch<"IsFinite">(grown, is_finite);
  c.launch<"SWhere">(is_finite, grown, scale_out, grown);
  c.launch<"SWhere">(is_due, grown, scale_out, grown);
  c.launch<"Muls">(scale_out, scalar<4>::make(k), reduced);
  c.launch<"SWhere">(is_found, reduced, grown, scale_out);
  c.launch<"SWhere">(is_due, none, steps, steps);
  c.launch<"SWhere">(is_found, none, steps, tracker_out);
}

// CANN is not known to mind a negative deviation; who takes the call instead says what is wrong.
void normal(const kernel_call& k) {
  if (!(number_of(k, 2).f >= 0)) return k.calls.refuse();
  call_operator<"InplaceNormal", tensor<0>, real<1, float>, real<2, float>, seed<3>, offset<3>>(k);
}

// CANN draws from weights that are no distribution as well: the least weight, and the least and the greatest sum of a row
// are looked at first, which waits for the stream, as PyTorch's own kernels do.
void multinomial(const kernel_call& k) {
  operator_calls& c = k.calls;
  tb_tensor rows = k.tensor(0);
  const int64_t last = --rows.ndim;
  int64_t three = 3;
  const tb_tensor sums = c.temporary(rows, kFloat), found = c.temporary({{}, {}, 1, {}, &three, {}, 0}, kFloat);
  const tb_tensor lowest = c.temporary({{}, {}, 0, {}, {}, {}, 0}, k.tensor(0).dtype);
  const auto place = [&](uint64_t i) {
    tb_tensor one = found;
    one.ndim = 0;
    one.byte_offset = i * sizeof(float);
    return c.tensor(one);
  };
  acl_tensor* row_sums = c.tensor(sums);
  acl_int_array *row_dims = c.ints(&last, 1), *none = c.ints(nullptr, 0);
  c.launch<"ReduceSum">(tensor<0>::make(k), row_dims, false, int{kAclFloat}, row_sums);
  c.launch<"Amin">(tensor<0>::make(k), none, false, c.tensor(lowest));
  c.launch<"InplaceCopy">(place(0), c.tensor(lowest));
  c.launch<"Amin">(row_sums, none, false, place(1));
  c.launch<"Amax">(row_sums, none, false, place(2));
  float values[3] = {};
  c.read(found.data, values, sizeof values);
  if (!(values[0] >= 0 && values[1] > 0 && std::isfinite(values[2]))) return c.refuse();
  call_operator<"Multinomial", tensor<0>, integer<1>, boolean<2>, seed<3>, offset<3>, tensor<4>>(k);
}

// ---- the table: PyTorch's operator, CANN's, its parameters in CANN's order by their places in PyTorch's ----

std::vector<row> rows() {
  return {
      several<scaled_sum<"Add", "Adds">, "Add", "Adds", "InplaceFillScalar">("aten::add.out", kAny, kMixedAndNumbers),
      several<scaled_sum<"Sub", "Subs">, "Sub", "Subs", "InplaceFillScalar">("aten::sub.out", kAny, kMixedAndNumbers),
      one<"Sub", operand<1, 3>, operand<0, 3>, scalar<2>, tensor<3>>("aten::rsub.Tensor", kAny, kMixedAndNumbers),
      several<binary<"Mul", "Muls">, "Mul", "Muls", "InplaceFillScalar">("aten::mul.out", kAny, kMixedAndNumbers),
      several<binary<"Div", "Divs">, "Div", "Divs", "InplaceFillScalar">("aten::div.out", kAny, kMixedAndNumbers),
      one<"Maximum", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::maximum.out", kAny, kMixedAndNumbers),
      one<"Minimum", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::minimum.out", kAny, kMixedAndNumbers),
      one<"PowTensorScalar", tensor<0>, scalar<1>, tensor<2>>("aten::pow.Tensor_Scalar_out"),
      one<"Addcmul", tensor<0>, operand<1, 4>, operand<2, 4>, scalar<3>, tensor<4>>("aten::addcmul.out", kAny,
                                                                                    TB_KERNEL_NUMBERS),
      one<"Addcdiv", tensor<0>, operand<1, 4>, operand<2, 4>, scalar<3>, tensor<4>>("aten::addcdiv.out", kAny,
                                                                                    TB_KERNEL_NUMBERS),
      one<"Lerps", tensor<0>, tensor<1>, scalar<2>, tensor<3>>("aten::lerp.Scalar_out", kFloats),
      one<"Neg", tensor<0>, tensor<1>>("aten::neg.out"),
      one<"Abs", tensor<0>, tensor<1>>("aten::abs.out"),
      one<"Exp", tensor<0>, tensor<1>>("aten::exp.out", kAny, kMixed),
      one<"Log", tensor<0>, tensor<1>>("aten::log.out", kAny, kMixed),
      one<"Sqrt", tensor<0>, tensor<1>>("aten::sqrt.out", kAny, kMixed),
      one<"Rsqrt", tensor<0>, tensor<1>>("aten::rsqrt.out", kAny, kMixed),
      one<"Reciprocal", tensor<0>, tensor<1>>("aten::reciprocal.out", kAny, kMixed),
      one<"Sin", tensor<0>, tensor<1>>("aten::sin.out", kAny, kMixed),
      one<"Cos", tensor<0>, tensor<1>>("aten::cos.out", kAny, kMixed),
      one<"Tanh", tensor<0>, tensor<1>>("aten::tanh.out", kAny, kMixed),
      one<"Sigmoid", tensor<0>, tensor<1>>("aten::sigmoid.out", kAny, kMixed),
      one<"Erf", tensor<0>, tensor<1>>("aten::erf.out", kAny, kMixed),
      one<"Floor", tensor<0>, tensor<1>>("aten::floor.out"),
      one<"Ceil", tensor<0>, tensor<1>>("aten::ceil.out"),
      one<"Sign", tensor<0>, tensor<1>>("aten::sign.out"),
      one<"LogicalNot", tensor<0>, tensor<1>>("aten::logical_not.out", kAny, kMixed),
      one<"BitwiseNot", tensor<0>, tensor<1>>("aten::bitwise_not.out"),
      one<"IsNegInf", tensor<0>, tensor<1>>("aten::isneginf.out"),
      one<"Relu", tensor<0>, tensor<1>>("aten::relu"),
      one<"Silu", tensor<0>, tensor<1>>("aten::silu.out", kFloats),
      one<"GeluV2", tensor<0>, is_tanh<1>, tensor<2>>("aten::gelu.out", kFloats),
      one<"ThresholdBackward", tensor<0>, tensor<1>, scalar<2>, tensor<3>>("aten::threshold_backward.grad_input"),
      one<"SigmoidBackward", tensor<0>, tensor<1>, tensor<2>>("aten::sigmoid_backward.grad_input", kFloats),
      one<"TanhBackward", tensor<0>, tensor<1>, tensor<2>>("aten::tanh_backward.grad_input", kFloats),
      one<"SiluBackward", tensor<0>, tensor<1>, tensor<2>>("aten::silu_backward.grad_input", kFloats),
      one<"GeluBackwardV2", tensor<0>, tensor<1>, text<2>, tensor<3>>("aten::gelu_backward.grad_input", kFloats),
      one<"Clamp", tensor<0>, scalar<1>, scalar<2>, tensor<3>>("aten::clamp.out"),
      one<"ClampMin", tensor<0>, scalar<1>, tensor<2>>("aten::clamp_min.out"),
      one<"ClampMax", tensor<0>, scalar<1>, tensor<2>>("aten::clamp_max.out"),

      one<"EqTensor", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::eq.Tensor_out", kAny, kMixedAndNumbers),
      one<"NeTensor", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::ne.Tensor_out", kAny, kMixedAndNumbers),
      one<"LtTensor", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::lt.Tensor_out", kAny, kMixedAndNumbers),
      one<"LeTensor", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::le.Tensor_out", kAny, kMixedAndNumbers),
      one<"GtTensor", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::gt.Tensor_out", kAny, kMixedAndNumbers),
      one<"GeTensor", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::ge.Tensor_out", kAny, kMixedAndNumbers),
      one<"EqScalar", tensor<0>, scalar<1>, tensor<2>>("aten::eq.Scalar_out"),
      one<"NeScalar", tensor<0>, scalar<1>, tensor<2>>("aten::ne.Scalar_out"),
      one<"LtScalar", tensor<0>, scalar<1>, tensor<2>>("aten::lt.Scalar_out"),
      one<"LeScalar", tensor<0>, scalar<1>, tensor<2>>("aten::le.Scalar_out"),
      one<"GtScalar", tensor<0>, scalar<1>, tensor<2>>("aten::gt.Scalar_out"),
      one<"GeScalar", tensor<0>, scalar<1>, tensor<2>>("aten::ge.Scalar_out"),
      one<"LogicalAnd", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::logical_and.out", kAny, kMixedAndNumbers),
      one<"LogicalOr", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::logical_or.out", kAny, kMixedAndNumbers),
      one<"BitwiseAndTensor", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::bitwise_and.Tensor_out", kAny,
                                                                       TB_KERNEL_NUMBERS),
      one<"BitwiseOrTensor", operand<0, 2>, operand<1, 2>, tensor<2>>("aten::bitwise_or.Tensor_out", kAny,
                                                                      TB_KERNEL_NUMBERS),
      one<"SWhere", tensor<0>, operand<1, 3>, operand<2, 3>, tensor<3>>("aten::where.self_out", kAny, kMixedAndNumbers),
      one<"InplaceMaskedFillScalar", tensor<0>, tensor<1>, scalar<2>>("aten::masked_fill_.Scalar"),

      one<"ReduceSum", tensor<0>, dims<1>, boolean<2>, dtype_of<4>, tensor<4>>("aten::sum.IntList_out"),
      one<"Mean", tensor<0>, dims<1>, boolean<2>, dtype_of<4>, tensor<4>>("aten::mean.out"),
      one<"Amax", tensor<0>, dims<1>, boolean<2>, tensor<3>>("aten::amax.out"),
      one<"Amin", tensor<0>, dims<1>, boolean<2>, tensor<3>>("aten::amin.out"),
      one<"All", tensor<0>, dims<1>, boolean<2>, tensor<3>>("aten::all.out"),
      one<"Any", tensor<0>, dims<1>, boolean<2>, tensor<3>>("aten::any.out"),
      one<"LinalgVectorNorm", tensor<0>, scalar<1>, dims<2>, boolean<3>, dtype_of<5>, tensor<5>>(
          "aten::linalg_vector_norm.out", kFloats),
      one<"Cumsum", tensor<0>, integer<1>, dtype_of<3>, tensor<3>>("aten::cumsum.out"),
      several<place_of_best<"ArgMax">, "ArgMax">("aten::argmax.out", kAny, TB_KERNEL_NEEDS_CONTIGUOUS),
      several<place_of_best<"ArgMin">, "ArgMin">("aten::argmin.out", kAny, TB_KERNEL_NEEDS_CONTIGUOUS),
      one<"Topk", tensor<0>, integer<1>, integer<2>, boolean<3>, boolean<4>, tensor<5>, tensor<6>>("aten::topk.values"),

      one<"Mm", tensor<0>, tensor<1>, tensor<2>, product_math>("aten::mm.out", kCube, kMath),
      one<"BatchMatMul", tensor<0>, tensor<1>, tensor<2>, product_math>("aten::bmm.out", kCube, kMath),
      one<"Addmm", tensor<0>, tensor<1>, tensor<2>, scalar<3>, scalar<4>, tensor<5>, product_math>("aten::addmm.out",
                                                                                                   kCube, kMath),
      one<"Baddbmm", tensor<0>, tensor<1>, tensor<2>, scalar<3>, scalar<4>, tensor<5>, product_math>(
          "aten::baddbmm.out", kCube, kMath),
      one<"Convolution", tensor<0>, tensor<1>, tensor<2>, ints<3>, ints<4>, ints<5>, boolean<6>, ints<7>, integer<8>,
          tensor<9>, conv_math>("aten::convolution_overrideable", kCube, kMath),
      several<convolution_backward, "ConvolutionBackward">("aten::convolution_backward_overrideable", kCube, kMath),

      one<"Softmax", tensor<0>, integer<1>, tensor<3>>("aten::_softmax.out", kFloats),
      one<"SoftmaxBackward", tensor<0>, tensor<1>, integer<2>, tensor<4>>("aten::_softmax_backward_data.out", kFloats),
      one<"LogSoftmax", tensor<0>, integer<1>, tensor<3>>("aten::_log_softmax.out", kFloats),
      one<"LogSoftmaxBackward", tensor<0>, tensor<1>, integer<2>, tensor<4>>("aten::_log_softmax_backward_data.out",
                                                                             kFloats),
      one<"LayerNorm", tensor<0>, ints<1>, tensor<2>, tensor<3>, real<4>, tensor<5>, tensor<6>, tensor<7>>(
          "aten::native_layer_norm", kFloats),
      one<"LayerNormBackward", tensor<0>, tensor<1>, ints<2>, tensor<3>, tensor<4>, tensor<5>, tensor<6>, mask<7>,
          tensor<8>, tensor<9>, tensor<10>>("aten::native_layer_norm_backward", kFloats),
      one<"BatchNorm", tensor<0>, tensor<1>, tensor<2>, tensor<3>, tensor<4>, boolean<5>, real<6>, real<7>, tensor<8>,
          tensor<9>, tensor<10>>("aten::native_batch_norm", kFloats),
      one<"BatchNormBackward", tensor<0>, tensor<1>, tensor<2>, tensor<3>, tensor<4>, tensor<5>, tensor<6>, boolean<7>,
          real<8>, mask<9>, tensor<10>, tensor<11>, tensor<12>>("aten::native_batch_norm_backward", kFloats),
      several<max_pool, "MaxPool2dWithIndices", "InplaceCopy">("aten::max_pool2d_with_indices.out", kFloats),
      several<max_pool_backward, "MaxPool2dWithIndicesBackward", "InplaceCopy">(
          "aten::max_pool2d_with_indices_backward.grad_input", kFloats),
      one<"AvgPool2d", tensor<0>, height_and_width<1>, height_and_width<2, 1>, height_and_width<3>, boolean<4>,
          boolean<5>, integer<6>, conv_math, tensor<7>>("aten::avg_pool2d.out", kFloats, kMath),
      one<"AvgPool2dBackward", tensor<0>, tensor<1>, height_and_width<2>, height_and_width<3, 2>, height_and_width<4>,
          boolean<5>, boolean<6>, integer<7>, conv_math, tensor<8>>("aten::avg_pool2d_backward.grad_input", kFloats,
                                                                    kMath),
      several<nll_loss, "NLLLoss", "InplaceFillScalar">("aten::nll_loss_forward.output", kFloats),
      several<nll_loss_backward, "NLLLossBackward", "InplaceFillScalar">("aten::nll_loss_backward.grad_input", kFloats),
      one<"MseLoss", tensor<0>, tensor<1>, integer<2>, tensor<3>>("aten::mse_loss.out", kFloats),
      one<"MseLossBackward", tensor<0>, tensor<1>, tensor<2>, integer<3>, tensor<4>>(
          "aten::mse_loss_backward.grad_input", kFloats),

      one<"InplaceCopy", tensor<0>, tensor<1>>("aten::copy_"),
      one<"Cat", tensors<0>, integer<1>, tensor<2>>("aten::cat.out"),
      one<"Arange", scalar<0>, scalar<1>, scalar<2>, tensor<3>>("aten::arange.start_out"),
      one<"Tril", tensor<0>, integer<1>, tensor<2>>("aten::tril.out"),
      one<"Triu", tensor<0>, integer<1>, tensor<2>>("aten::triu.out"),
      one<"IndexSelect", tensor<0>, integer<1>, tensor<2>, tensor<3>>("aten::index_select.out"),
      one<"Gather", tensor<0>, integer<1>, tensor<2>, tensor<4>>("aten::gather.out"),
      one<"ScatterAdd", tensor<0>, integer<1>, tensor<2>, tensor<3>, tensor<4>>("aten::scatter_add.out"),
      one<"EmbeddingDenseBackward", tensor<0>, tensor<1>, integer<2, uint64_t>, integer<3, uint64_t>, boolean<4>,
          tensor<5>>("aten::embedding_dense_backward", kFloats),

      one<"InplaceUniform", tensor<0>, real<1>, real<2>, seed<3, uint64_t>, offset<3, uint64_t>>("aten::uniform_",
                                                                                                 kFloats),
      several<normal, "InplaceNormal">("aten::normal_", kFloats),
      one<"InplaceBernoulli", tensor<0>, scalar<1>, seed<2>, offset<2>>("aten::bernoulli_.float"),
      several<multinomial, "Multinomial", "ReduceSum", "Amin", "Amax", "InplaceCopy">("aten::multinomial.out"),

      one<"ForeachNonFiniteCheckAndUnscale", tensors<0>, tensor<1>, tensor<2>>(
          "aten::_amp_foreach_non_finite_check_and_unscale_", kFloats),
      several<update_scale, "GtScalar", "Adds", "EqScalar", "InplaceFillScalar", "Muls", "IsFinite", "SWhere">(
          "aten::_amp_update_scale_", kFloats),
  };
}

} // namespace

const tb_kernel_table& operator_table() {
  static const std::vector<row> all = rows();
  static const tb_kernel_table table = [] {
    static std::vector<const tb_kernel*> kernels;
    for (const row& r : all)
      if (r.available) kernels.push_back(&r.kernel);
    tb_kernel_table t{};
    t.struct_size = sizeof t;
    t.kernels = kernels.data();
    t.num_kernels = kernels.size();
    return t;
  }();
  return table;
}

} // namespace npu
