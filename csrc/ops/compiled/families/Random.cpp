// Random numbers: every element takes its own from the generator's Philox stream, see skeletons/random.c.

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/native/DistributionTemplates.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/DType.h"
#include "csrc/core/ErrorCell.h"
#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Dropout.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled::random {
namespace {

constexpr int kMaxOperands = 3;
constexpr int kMaxScalars = 2;

/// What is drawn: the rest of a name in the skeleton, DRAW_uniform and PUT_uniform.
enum class Numbers : uint8_t { kComputed, kWhole }; // of the type that is computed in, or i64

struct Distribution {
  const char* name;
  Numbers numbers;
  int per_step;                  // elements, where they take 32 bits; 1 if numbers may be rejected
  const char* refusal = nullptr; // of parameters that lie beside the tensors: what PyTorch says to others than it takes
};
constexpr char kNoProbability[] =
    "aten::bernoulli: Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be "
    "improved?  If so, please report an enhancement request to PyTorch.)";
constexpr char kNoDeviation[] = "aten::normal: normal expects all elements of std >= 0.0";
constexpr char kNoRate[] = "aten::poisson: invalid Poisson rate, expected rate to be non-negative";

constexpr Distribution kUniform{"uniform", Numbers::kComputed, 4};
constexpr Distribution kNormal{"normal", Numbers::kComputed, 4};
constexpr Distribution kNormalMean{"normal_mean", Numbers::kComputed, 4};
constexpr Distribution kNormalStd{"normal_std", Numbers::kComputed, 4, kNoDeviation};
constexpr Distribution kNormalBoth{"normal_both", Numbers::kComputed, 4, kNoDeviation};
constexpr Distribution kLogNormal{"log_normal", Numbers::kComputed, 4};
constexpr Distribution kExponential{"exponential", Numbers::kComputed, 4};
constexpr Distribution kGeometric{"geometric", Numbers::kComputed, 4};
constexpr Distribution kCauchy{"cauchy", Numbers::kComputed, 4};
constexpr Distribution kBernoulli{"bernoulli", Numbers::kWhole, 4};
constexpr Distribution kBernoulliTensor{"bernoulli_tensor", Numbers::kComputed, 4, kNoProbability};
constexpr Distribution kIntegers{"integers", Numbers::kWhole, 4};
constexpr Distribution kWideIntegers{"wide_integers", Numbers::kWhole, 2};
constexpr Distribution kDropout{"dropout", Numbers::kComputed, 4};
constexpr Distribution kPoisson{"poisson", Numbers::kComputed, 1, kNoRate};
constexpr Distribution kGamma{"gamma", Numbers::kComputed, 1};
constexpr Distribution kBinomial{"binomial", Numbers::kComputed, 1};

void check_no_overlap(const tb_tensor& output) {
  TORCH_CHECK(!has_repeats(output),
              "unsupported operation: more than one element of the written-to tensor refers to "
              "a single memory location. Please clone() the tensor before performing the "
              "operation.");
}

/// One launch: the outputs come first among the operands, and the first one's shape is that of all, which are broadcast.
class Draw {
 public:
  Draw(const Distribution& distribution, const tb_kernel_context& context, const tb_philox& numbers)
      : distribution_(distribution), context_(context), numbers_(numbers) {}

  void operand(const tb_tensor& tensor) {
    operands_[static_cast<std::size_t>(num_operands_++)] = &tensor;
  }
  void scalar(double value) {
    scalars_[static_cast<std::size_t>(num_scalars_)] = std::bit_cast<int64_t>(value);
    whole_[static_cast<std::size_t>(num_scalars_++)] = false;
  }
  void scalar(int64_t value) {
    scalars_[static_cast<std::size_t>(num_scalars_)] = value;
    whole_[static_cast<std::size_t>(num_scalars_++)] = true;
  }
  /// Instead of the output's own.
  void compute_in(ValueType type) {
    compute_ = type;
  }

  tb_status run();

 private:
  bool lay_out();
  bool is_contiguous() const {
    return geometry_.rank == 1 && std::all_of(geometry_.strides.begin(), geometry_.strides.begin() + num_operands_,
                                              [](const auto& strides) { return strides[0] == 1; });
  }
  /// Whether items that run side by side can move what a step does of each operand at once.
  bool is_wide() const;
  Specialization specialize() const;
  int per_step() const {
    return distribution_.per_step == 4 && compute_ == ValueType::f64 && distribution_.numbers == Numbers::kComputed &&
                   &distribution_ != &kDropout && &distribution_ != &kBernoulliTensor
               ? 2
               : distribution_.per_step;
  }
  ValueType type_of(int operand) const {
    return value_type(operands_[static_cast<std::size_t>(operand)]->dtype);
  }

  const Distribution& distribution_;
  const tb_kernel_context& context_;
  const tb_philox& numbers_;
  std::array<const tb_tensor*, kMaxOperands> operands_{};
  int num_operands_ = 0;
  std::array<int64_t, kMaxScalars> scalars_{}; // a number's bits, of a double or an integer
  std::array<bool, kMaxScalars> whole_{};
  int num_scalars_ = 0;
  ValueType compute_ = ValueType::none;
  Geometry geometry_;
};

bool Draw::lay_out() {
  const View first(*operands_[0]);
  std::array<View, kMaxOperands> views;
  std::array<tb_tensor, kMaxOperands> tensors;
  std::array<const tb_tensor*, kMaxOperands> pointers;
  for (std::size_t n = 0; n < static_cast<std::size_t>(num_operands_); ++n) {
    views[n] = View(*operands_[n]).expanded(first.sizes);
    tensors[n] = views[n].tensor();
    pointers[n] = &tensors[n];
  }
  return geometry_.of(pointers.data(), num_operands_, /*reorder=*/false);
}

bool Draw::is_wide() const {
  if (per_step() == 1 || !is_contiguous() || runs_in_stretches(context_.device)) {
    return false;
  }
  return std::all_of(operands_.begin(), operands_.begin() + num_operands_, [&](const tb_tensor* operand) {
    const View view(*operand);
    return per_step() * view.element_bytes() >= 4 && is_of_vectors(view.data, view.element_bytes(), per_step());
  });
}

void derive_random(const Specialization& facts, SourceText& text) {
  std::string numbers;
  for (int i = 0; i < facts.number_of("NUMBERS_GIVEN"); ++i) {
    numbers += facts.number_of("WHOLE", i) != 0 ? c10::str("const i64 s", i, " = args.scalars[", i, "].i64_; ")
                                                : c10::str("const T s", i, " = TB_SCALAR(", i, "); ");
  }
  text.define("NUMBERS", numbers);
  text.define("CELL", c10::str("p", facts.number_of("OPERANDS")));
  if (!facts.is("WIDE")) {
    return;
  }
  std::vector<WideOperand> operands;
  for (int n = 0; n < facts.number_of("OPERANDS"); ++n) {
    const bool is_output = n < facts.number_of("OUTPUTS");
    operands.push_back({n, facts.type_of("TYPE", n), !is_output, is_output});
  }
  define_wide(text, "p", operands, facts.number_of("PER"));
}
constexpr Skeleton kRandom{"philox random", "random", derive_random};

Specialization Draw::specialize() const {
  const ValueType stored = type_of(0);
  const int per = per_step();
  const int digits = stored == ValueType::f16 ? 11 : stored == ValueType::bf16 ? 8 : per == 2 ? 53 : 24;
  Specialization wanted(kRandom);
  wanted.compute_in(compute_)
      .index_of(geometry_.fits_32)
      .number("OPERANDS", num_operands_)
      .number("RANK", geometry_.rank_class())
      .number("SCALARS", std::max(num_scalars_, 1))
      .text("DRAW", distribution_.name)
      .called(distribution_.name)
      .number("PER", per)
      .number("DIGITS", digits)
      .text("UNIT_SCALE", digits == 11   ? "TC(4.8828125e-04)"
                          : digits == 8  ? "TC(0.00390625)"
                          : digits == 24 ? "TC(5.9604644775390625e-08)"
                                         : "TC(1.1102230246251565e-16)")
      .text("V", distribution_.numbers == Numbers::kWhole ? "i64" : "T")
      .flag("STORED_AS_HALF", stored == ValueType::f16 || stored == ValueType::bf16)
      .flag("CONTIGUOUS", is_contiguous())
      .flag("WIDE", is_wide())
      .number("OUTPUTS", &distribution_ == &kDropout ? 2 : 1)
      .number("NUMBERS_GIVEN", num_scalars_)
      .parameters(num_operands_ + (distribution_.refusal ? 1 : 0));
  for (int n = 0; n < num_operands_; ++n) {
    wanted.type("TYPE", n, type_of(n));
  }
  for (int i = 0; i < num_scalars_; ++i) {
    wanted.number("WHOLE", i, whole_[static_cast<std::size_t>(i)]);
  }
  return wanted;
}

tb_status Draw::run() {
  if (compute_ == ValueType::none) {
    const ValueType own = compute_type(type_of(0));
    compute_ = distribution_.numbers == Numbers::kComputed && !is_floating(own) ? ValueType::f32 : own;
  }
  for (int n = 0; n < num_operands_; ++n) {
    if (type_of(n) == ValueType::none) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  check_no_overlap(*operands_[0]);
  if (!lay_out() || !computes(context_.device, compute_)) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (geometry_.count == 0) {
    return TB_STATUS_OK;
  }
  const auto& function = find_function(context_.device, specialize());
  ArgsStruct args;
  args.add({geometry_.count, static_cast<int64_t>(numbers_.seed), static_cast<int64_t>(numbers_.offset / 4),
            distribution_.refusal ? fallible_operator(distribution_.refusal) : 0});
  args.add_dims(geometry_);
  for (int i = 0; i < std::max(num_scalars_, 1); ++i) {
    const int64_t word = scalars_[static_cast<std::size_t>(i)];
    args.add(whole_[static_cast<std::size_t>(i)] ? word : scalar_of(std::bit_cast<double>(word), compute_));
  }
  Launch launch(context_);
  for (int n = 0; n < num_operands_; ++n) {
    launch.pointer(*operands_[static_cast<std::size_t>(n)]);
  }
  if (distribution_.refusal) {
    launch.pointer(error_cell(context_.device));
  }
  args.pass(launch);
  const int per = per_step();
  launch.run(function, std::max<int64_t>(geometry_.count / per, 1), per == 1 ? 64 : 16);
  if (distribution_.refusal) {
    fallible_launch(context_.device, context_.stream);
  }
  return TB_STATUS_OK;
}

const tb_philox& philox_of(const tb_arg& argument) {
  return *static_cast<const tb_philox*>(argument.v.p);
}

// ---- in place, of numbers ----

struct Limits {
  double lowest, max;
};

Limits limits_of(ValueType type) {
  const double max = type == ValueType::f16    ? 65504.0
                     : type == ValueType::bf16 ? 3.3895313892515355e38
                     : type == ValueType::f32  ? static_cast<double>(FLT_MAX)
                                               : DBL_MAX;
  return {-max, max};
}

const char* dtype_name(const tb_tensor& tensor) {
  const auto type = to_scalar_type(tensor.dtype);
  return type ? c10::toString(*type) : "its dtype";
}

tb_status uniform(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::uniform_;
  const tb_tensor& self = tensor_in(args[Op::self]);
  const double from = double_of(args[Op::from]), to = double_of(args[Op::to]);
  const ValueType type = value_type(self.dtype);
  if (!is_floating(type)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto limits = limits_of(type);
  TORCH_CHECK(from >= limits.lowest && from <= limits.max, "from is out of bounds for ", dtype_name(self));
  TORCH_CHECK(to >= limits.lowest && to <= limits.max, "to is out of bounds for ", dtype_name(self));
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  TORCH_CHECK(to - from <= limits.max, "uniform_ expects to-from <= std::numeric_limits<", dtype_name(self),
              ">::max(), but found to=", to, " and from=", from, " which result in to-from to exceed the limit");
  Draw draw(kUniform, context, philox_of(args[Op::generator]));
  draw.operand(self);
  draw.scalar(from);
  draw.scalar(to);
  return draw.run();
}

constexpr double kRootOfHalf = 0.70710678118654752440;

template <const Distribution& distribution>
tb_status normal(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::normal_;
  static_assert(agree<Op, op::log_normal_>() && agree<Op, op::cauchy_>("self generator"));
  static_assert(+Op::mean == +op::cauchy_::median && +Op::std == +op::cauchy_::sigma);
  const tb_tensor& self = tensor_in(args[Op::self]);
  const double mean = double_of(args[Op::mean]), std = double_of(args[Op::std]);
  if (&distribution == &kNormal) {
    TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  } else if (&distribution == &kLogNormal) {
    TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
  } else {
    TORCH_CHECK(std > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", std);
  }
  const bool of_parts = &distribution == &kNormal && is_complex(value_type(self.dtype)); // which share the variance
  if (!is_floating(value_type(self.dtype)) && !of_parts) {
    return TB_STATUS_UNSUPPORTED;
  }
  const View parts = of_parts ? View(self).in_halves() : View();
  const tb_tensor numbers = parts.tensor();
  Draw draw(distribution, context, philox_of(args[Op::generator]));
  draw.operand(of_parts ? numbers : self);
  draw.scalar(mean);
  draw.scalar(of_parts ? std * kRootOfHalf : std);
  return draw.run();
}

tb_status exponential(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::exponential_;
  const tb_tensor& self = tensor_in(args[Op::self]);
  const double lambda = double_of(args[Op::lambd]);
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  const ValueType type = value_type(self.dtype);
  if (!is_floating(type)) {
    return TB_STATUS_UNSUPPORTED;
  }
  Draw draw(kExponential, context, philox_of(args[Op::generator]));
  draw.operand(self);
  draw.scalar(1 / lambda);
  draw.scalar(type == ValueType::f64 ? DBL_EPSILON / 2 : static_cast<double>(FLT_EPSILON / 2));
  return draw.run();
}

tb_status geometric(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::geometric_;
  const tb_tensor& self = tensor_in(args[Op::self]);
  const double p = double_of(args[Op::p]);
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  if (value_type(self.dtype) == ValueType::b8) {
    return TB_STATUS_UNSUPPORTED;
  }
  Draw draw(kGeometric, context, philox_of(args[Op::generator]));
  draw.operand(self);
  draw.scalar(1 / std::log1p(-p));
  return draw.run();
}

tb_status bernoulli(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::bernoulli__float;
  const double p = double_of(args[Op::p]);
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  Draw draw(kBernoulli, context, philox_of(args[Op::generator]));
  draw.operand(tensor_in(args[Op::self]));
  draw.scalar(below_with_probability(p));
  return draw.run();
}

/// Enough to tell whether the element of `p` is a probability.
ValueType compared_in(int device, const tb_tensor& p) {
  return value_type(p.dtype) == ValueType::f64 && computes(device, ValueType::f64) ? ValueType::f64 : ValueType::f32;
}

tb_status bernoulli_tensor(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::bernoulli__Tensor;
  if (!is_floating(value_type(tensor_in(args[Op::p]).dtype)) ||
      tensor_in(args[Op::p]).ndim > tensor_in(args[Op::self]).ndim) {
    return TB_STATUS_UNSUPPORTED;
  }
  for (int d = 1; d <= tensor_in(args[Op::p]).ndim; ++d) { // what cannot be broadcast
    const int64_t size = tensor_in(args[Op::p]).shape[tensor_in(args[Op::p]).ndim - d];
    if (size != 1 && size != tensor_in(args[Op::self]).shape[tensor_in(args[Op::self]).ndim - d]) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  Draw draw(kBernoulliTensor, context, philox_of(args[Op::generator]));
  draw.operand(tensor_in(args[Op::self]));
  draw.operand(tensor_in(args[Op::p]));
  draw.compute_in(compared_in(context.device, tensor_in(args[Op::p])));
  return draw.run();
}

tb_status bernoulli_out(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::bernoulli_out;
  Draw draw(kBernoulliTensor, context, philox_of(args[Op::generator]));
  draw.operand(tensor_in(args[Op::out]));
  draw.operand(tensor_in(args[Op::self]));
  draw.compute_in(compared_in(context.device, tensor_in(args[Op::self])));
  return is_floating(value_type(tensor_in(args[Op::self]).dtype)) ? draw.run() : TB_STATUS_UNSUPPORTED;
}

// ---- whole numbers ----

struct Range {
  int64_t from;
  uint64_t size; // 0: 2^64
};

/// As at::native::templates::random_from_to_impl.
Range range_of(c10::ScalarType type, int64_t from, const int64_t* to) {
  namespace templates = at::native::templates;
  const auto meta = c10::scalarTypeToTypeMeta(type);
  const auto adjust = [&](auto element, bool has_to, int64_t& end) {
    using scalar_t = decltype(element);
    from = templates::update_from<scalar_t>(from);
    if (has_to) {
      end = templates::update_to<scalar_t>(end);
    } else {
      end = int64_t{1} << std::numeric_limits<scalar_t>::digits;
    }
  };
  const auto adjust_floating = [&](bool has_to, int64_t& end) {
    switch (type) {
      case c10::ScalarType::Half:
        return adjust(c10::Half(), has_to, end);
      case c10::ScalarType::BFloat16:
        return adjust(c10::BFloat16(), has_to, end);
      case c10::ScalarType::Float:
        return adjust(float(), has_to, end);
      default:
        return adjust(double(), has_to, end);
    }
  };
  if (to) {
    int64_t end = *to;
    TORCH_CHECK(from < end, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", end);
    if (c10::isFloatingType(type)) {
      adjust_floating(true, end);
      TORCH_CHECK(from < end,
                  "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from=", from,
                  " >= to=", end);
    }
    templates::check_from_to_in_range(from, end - 1, meta);
    return {from, static_cast<uint64_t>(end) - static_cast<uint64_t>(from)};
  }
  if (from == std::numeric_limits<int64_t>::lowest()) {
    return {from, 0};
  }
  int64_t last = 0;
  switch (type) {
    case c10::ScalarType::Bool:
      last = 1;
      break;
    case c10::ScalarType::Byte:
      last = UINT8_MAX;
      break;
    case c10::ScalarType::Char:
      last = INT8_MAX;
      break;
    case c10::ScalarType::Short:
      last = INT16_MAX;
      break;
    case c10::ScalarType::Int:
      last = INT32_MAX;
      break;
    case c10::ScalarType::Long:
      last = INT64_MAX;
      break;
    default:
      adjust_floating(false, last);
      TORCH_CHECK(from < last, "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to ",
                  "dtype, but got from=", from, " > to_inc=", last);
  }
  templates::check_from_to_in_range(from, last, meta);
  return {from, static_cast<uint64_t>(last) - static_cast<uint64_t>(from) + 1};
}

tb_status integers(const tb_kernel_context& context, const tb_tensor& self, int64_t from, const int64_t* to,
                   const tb_philox& numbers) {
  const auto type = to_scalar_type(self.dtype);
  if (!type || value_type(self.dtype) == ValueType::none) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto range = range_of(*type, from, to);
  // One number of 32 bits for each element as long as that prefers no value by more than 2^-12.
  const bool narrow = range.size != 0 && range.size <= uint64_t{1} << 20;
  Draw draw(narrow ? kIntegers : kWideIntegers, context, numbers);
  draw.operand(self);
  draw.scalar(range.from);
  draw.scalar(static_cast<int64_t>(range.size));
  return draw.run();
}

tb_status random_to(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::random__to;
  return integers(context, tensor_in(args[Op::self]), 0, &args[Op::to].v.i, philox_of(args[Op::generator]));
}

tb_status random_from(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::random__from;
  const int64_t* to = args[Op::to].tag == TB_ARG_NONE ? nullptr : &args[Op::to].v.i;
  return integers(context, tensor_in(args[Op::self]), args[Op::from].v.i, to, philox_of(args[Op::generator]));
}

tb_status random_any(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::random_;
  return integers(context, tensor_in(args[Op::self]), 0, nullptr, philox_of(args[Op::generator]));
}

// ---- of tensors of parameters ----

/// Which of the two are tensors.
template <bool kMean, bool kStd>
tb_status normal_of(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::normal_Tensor_Tensor_out;
  static_assert(agree<Op, op::normal_Tensor_float_out, op::normal_float_Tensor_out>());
  const tb_tensor& out = tensor_in(args[Op::out]);
  if (!kStd) {
    const double std = double_of(args[Op::std]);
    TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  }
  if (!is_floating(value_type(out.dtype))) {
    return TB_STATUS_UNSUPPORTED;
  }
  Draw draw(kMean && kStd ? kNormalBoth : kMean ? kNormalMean : kNormalStd, context, philox_of(args[Op::generator]));
  draw.operand(out);
  if (kMean) {
    draw.operand(tensor_in(args[Op::mean]));
  } else {
    draw.scalar(double_of(args[Op::mean]));
  }
  if (kStd) {
    draw.operand(tensor_in(args[Op::std]));
  } else {
    draw.scalar(double_of(args[Op::std]));
  }
  return draw.run();
}

ValueType sampled_in(int device) {
  return computes(device, ValueType::f64) ? ValueType::f64 : ValueType::f32;
}

tb_status poisson(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::poisson;
  Draw draw(kPoisson, context, philox_of(args[Op::generator]));
  draw.operand(tensor_in(args[Op::result]));
  draw.operand(tensor_in(args[Op::self]));
  draw.compute_in(sampled_in(context.device));
  return draw.run();
}

tb_status standard_gamma(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_standard_gamma;
  Draw draw(kGamma, context, philox_of(args[Op::generator]));
  draw.operand(tensor_in(args[Op::result]));
  draw.operand(tensor_in(args[Op::self]));
  const ValueType type = value_type(tensor_in(args[Op::result]).dtype);
  draw.scalar(type == ValueType::f64   ? DBL_MIN
              : type == ValueType::f16 ? 6.103515625e-05
                                       : static_cast<double>(FLT_MIN));
  draw.compute_in(sampled_in(context.device));
  return draw.run();
}

tb_status binomial(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::binomial;
  Draw draw(kBinomial, context, philox_of(args[Op::generator]));
  draw.operand(tensor_in(args[Op::result]));
  draw.operand(tensor_in(args[Op::count]));
  draw.operand(tensor_in(args[Op::prob]));
  draw.compute_in(sampled_in(context.device));
  return draw.run();
}

// ---- dropout ----

tb_status dropout(const tb_kernel_context& context, const tb_tensor& input, double kept, const tb_philox& numbers,
                  const tb_arg* outputs) {
  if (!is_floating(value_type(input.dtype)) || !(kept > 0 && kept <= 1)) {
    return TB_STATUS_UNSUPPORTED;
  }
  Draw draw(kDropout, context, numbers);
  draw.operand(tensor_in(outputs[0]));
  draw.operand(tensor_in(outputs[1]));
  draw.operand(input);
  draw.scalar(below_with_probability(kept));
  draw.scalar(1 / kept);
  return draw.run();
}

tb_status native_dropout(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::native_dropout;
  const double kept = 1 - double_of(args[Op::p]);
  if (args[Op::train].tag != TB_ARG_NONE && args[Op::train].v.i == 0) {
    return TB_STATUS_UNSUPPORTED;
  }
  return dropout(context, tensor_in(args[Op::input]), kept, draw_for_dropout(context), args + Op::result0);
}

/// p is the probability to keep an element.
tb_status fused_dropout(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_fused_dropout;
  return dropout(context, tensor_in(args[Op::self]), double_of(args[Op::p]), philox_of(args[Op::generator]),
                 args + Op::result0);
}

// ---- permutations ----

/// Round keys are as many numbers of the generator, of counters {offset / 4 + k, 0}.
constexpr int kRounds = 24;

tb_status randperm(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::randperm_generator_out;
  const int64_t n = args[Op::n].v.i;
  const tb_tensor& out = tensor_in(args[Op::out]);
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  const ValueType type = value_type(out.dtype);
  if (out.ndim != 1 || out.shape[0] != n || type == ValueType::none || type == ValueType::b8) {
    return TB_STATUS_UNSUPPORTED;
  }
  const int64_t most = type == ValueType::u8     ? 256
                       : type == ValueType::i8   ? 128
                       : type == ValueType::i16  ? int64_t{1} << 15
                       : type == ValueType::f16  ? (int64_t{1} << 11) + 1
                       : type == ValueType::bf16 ? (int64_t{1} << 8) + 1
                       : type == ValueType::f32  ? (int64_t{1} << 24) + 1
                       : type == ValueType::i32  ? int64_t{1} << 31
                                                 : int64_t{1} << 53;
  TORCH_CHECK(n <= most, "n is too large for result tensor type: '", dtype_name(out), "'");
  if (n == 0) {
    return TB_STATUS_OK;
  }
  static constexpr Skeleton kPermutation{"philox permutation", "permutation"};
  Specialization wanted(kPermutation);
  wanted.compute_in(ValueType::i64).index_of(false).type("OUT", type).number("ROUNDS", kRounds).parameters(1);
  const auto& function = find_function(context.device, wanted);
  const auto& numbers = philox_of(args[Op::generator]);
  int bits = 2; // of the numbers that are permuted, those of n and more left out
  while (int64_t{1} << bits < n) {
    ++bits;
  }
  std::array<int64_t, 5 + kRounds> values;
  values[0] = n;
  values[1] = out.strides[0];
  values[2] = static_cast<int64_t>(numbers.seed);
  values[3] = static_cast<int64_t>(numbers.offset / 4);
  values[4] = bits;
  at::Philox4_32 engine(numbers.seed, 0, numbers.offset / 4);
  for (std::size_t round = 0; round < kRounds; ++round) {
    values[5 + round] = engine();
  }
  Launch launch(context);
  launch.pointer(out);
  launch.value(values.data(), sizeof(values));
  launch.run(function, n, 64);
  return TB_STATUS_OK;
}

} // namespace

void add(Kernels& kernels) {
  const auto in_place = [&](const char* overload, KernelFunction function, const TypeMask& types = kCommonTypes) {
    kernels.add(overload, function, kTakesEmpty, nullptr, types);
  };
  in_place(op::uniform_::kName, uniform);
  in_place(op::normal_::kName, normal<kNormal>, kAllTypes);
  in_place(op::log_normal_::kName, normal<kLogNormal>);
  in_place(op::cauchy_::kName, normal<kCauchy>);
  in_place(op::exponential_::kName, exponential);
  in_place(op::geometric_::kName, geometric);
  in_place(op::bernoulli__float::kName, bernoulli);
  in_place(op::bernoulli__Tensor::kName, bernoulli_tensor);
  in_place(op::random_::kName, random_any);
  in_place(op::random__to::kName, random_to);
  in_place(op::random__from::kName, random_from);
  kernels.add(op::bernoulli_out::kName, bernoulli_out);
  kernels.add(op::normal_Tensor_float_out::kName, normal_of<true, false>);
  kernels.add(op::normal_float_Tensor_out::kName, normal_of<false, true>);
  kernels.add(op::normal_Tensor_Tensor_out::kName, normal_of<true, true>);
  kernels.add(op::poisson::kName, poisson);
  kernels.add(op::_standard_gamma::kName, standard_gamma);
  kernels.add(op::binomial::kName, binomial);
  kernels.add(op::native_dropout::kName, native_dropout);
  kernels.add(op::_fused_dropout::kName, fused_dropout);
  in_place(op::randperm_generator_out::kName, randperm);
}

} // namespace torch_backend::compiled::random
