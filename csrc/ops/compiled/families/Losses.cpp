// Losses, summed, averaged or for each element, and their gradients.

#include <array>
#include <cstdlib>

#include "csrc/core/ErrorCell.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/compiled/loops/Reduce.h"

namespace torch_backend::compiled::losses {
namespace {

constexpr int64_t kNoReduction = 0; // at::Reduction
constexpr int64_t kMeanReduction = 1;

/// Where an overload has what not all of them have in the same place; -1: nowhere.
struct Places {
  int32_t reduction;
  int32_t result;
  int32_t weight = -1;
  int32_t number = -1; // beta, delta
};
template <class Op, class Backward>
constexpr bool begin_alike = agree<op::mse_loss_out, Op>("self target") &&
                             agree<op::mse_loss_backward_grad_input, Backward>("grad_output self target");

struct Loss {
  Places forward;
  Places backward;
  const char* reduction;
  const char* weighted_reduction;
  PointwiseEntry each;    // (x, y[, weight][, number])
  const char* derivative; // of codegen/kernels/pointwise.yaml
};

constexpr PointwiseEntry each_of(const char* name, const char* parameters, const char* text, const char* kinds) {
  return {name, nullptr, parameters, text, nullptr, nullptr, "floating", "", 1, kinds};
}

using MseLoss = op::mse_loss_out;
using MseLossBackward = op::mse_loss_backward_grad_input;
static_assert(begin_alike<MseLoss, MseLossBackward>);
constexpr Loss kSquaredError{
    {MseLoss::reduction, MseLoss::out},
    {MseLossBackward::reduction, MseLossBackward::grad_input},
    "squared_error",
    nullptr,
    each_of("squared_error", "T x, T y, TB_PRIVATE T* out", "*out = tb_squared_error(x, y);", "tt"),
    MseLossBackward::kName};

using SmoothL1Loss = op::smooth_l1_loss_out;
using SmoothL1LossBackward = op::smooth_l1_loss_backward_grad_input;
static_assert(begin_alike<SmoothL1Loss, SmoothL1LossBackward>);
constexpr Loss kSmoothL1{
    {SmoothL1Loss::reduction, SmoothL1Loss::out, -1, SmoothL1Loss::beta},
    {SmoothL1LossBackward::reduction, SmoothL1LossBackward::grad_input, -1, SmoothL1LossBackward::beta},
    "smooth_l1",
    nullptr,
    each_of("smooth_l1", "T x, T y, T beta, TB_PRIVATE T* out", "*out = tb_smooth_l1(x, y, beta);", "ttn"),
    SmoothL1LossBackward::kName};

using HuberLoss = op::huber_loss_out;
using HuberLossBackward = op::huber_loss_backward_out;
static_assert(begin_alike<HuberLoss, HuberLossBackward>);
constexpr Loss kHuber{{HuberLoss::reduction, HuberLoss::out, -1, HuberLoss::delta},
                      {HuberLossBackward::reduction, HuberLossBackward::grad_input, -1, HuberLossBackward::delta},
                      "huber",
                      nullptr,
                      each_of("huber", "T x, T y, T delta, TB_PRIVATE T* out", "*out = tb_huber(x, y, delta);", "ttn"),
                      HuberLossBackward::kName};

using CrossEntropy = op::binary_cross_entropy_out;
using CrossEntropyBackward = op::binary_cross_entropy_backward_grad_input;
static_assert(begin_alike<CrossEntropy, CrossEntropyBackward>);
constexpr Loss kBinaryCrossEntropy{
    {CrossEntropy::reduction, CrossEntropy::out, CrossEntropy::weight},
    {CrossEntropyBackward::reduction, CrossEntropyBackward::grad_input, CrossEntropyBackward::weight},
    "binary_cross_entropy",
    "weighted_binary_cross_entropy",
    each_of("binary_cross_entropy", "T x, T y, int has_weight, T weight, TB_PRIVATE T* out",
            "*out = tb_binary_cross_entropy(x, y) * (has_weight ? weight : TC(1.0));", "ttT"),
    CrossEntropyBackward::kName};

/// `view` for every element of `like`: its own, or one for all.
bool spread_over(const View& like, View* view) {
  if (view->data && view->sizes != like.sizes) {
    if (view->numel() != 1) {
      return false;
    }
    view->sizes = like.sizes;
    view->strides.assign(like.sizes.size(), 0);
  }
  return true;
}

/// Else the device raises `message`, of static storage.
tb_status expect_probabilities(const tb_kernel_context& context, const View& x, const char* message) {
  View flag;
  tb_status status = TB_STATUS_OK;
  if (!temporary(context, ValueType::b8, Dims(x.sizes.size(), 1), &flag, &status)) {
    return status;
  }
  status = reduce(context, reduction("are_probabilities"), flag, x, all_dims(x.dim()), compute_type(x.type()));
  if (status == TB_STATUS_OK) {
    report_unless(context, flag.data, 1, message);
  }
  return status;
}

bool take_weight(const Places& places, const tb_arg* args, View* weight) {
  return places.weight < 0 || args[places.weight].tag == TB_ARG_NONE || view_of(args[places.weight], weight);
}

tb_status loss(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = MseLoss;
  const auto& which = *static_cast<const Loss*>(data);
  const auto& places = which.forward;
  View operands[3], out;
  auto& [self, target, weight] = operands;
  if (!view_of(args[Op::self], &self) || !view_of(args[Op::target], &target) || !view_of(args[places.result], &out) ||
      !is_floating(self.type()) || self.sizes != target.sizes || !take_weight(places, args, &weight) ||
      !spread_over(self, &weight)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto compute = compute_type(out.type());
  if (&which == &kBinaryCrossEntropy) {
    auto status = expect_probabilities(context, self,
                                       "aten::binary_cross_entropy: all elements of input should be between 0 and 1");
    if (status == TB_STATUS_OK) {
      status = expect_probabilities(context, target,
                                    "aten::binary_cross_entropy: all elements of target should be between 0 and 1");
    }
    if (status != TB_STATUS_OK) {
      return status;
    }
  }
  const bool has_number = places.number >= 0;
  const double numbers[2] = {args[places.reduction].v.i == kMeanReduction ? 1.0 : 0.0,
                             has_number ? args[places.number].v.f : 0};
  const std::size_t num_numbers = has_number ? 1 : 0;
  const c10::ArrayRef<View> inputs(operands, places.weight >= 0 ? 3 : 2);
  if (out.sizes == self.sizes) { // whatever number says so
    return pointwise::compute_elements(context, which.each, out, inputs, {numbers + 1, num_numbers}, compute)
               ? TB_STATUS_OK
               : TB_STATUS_UNSUPPORTED;
  }
  const uint64_t dims = all_dims(self.dim());
  return reduce(context, reduction(weight.data ? which.weighted_reduction : which.reduction),
                with_reduced(out, self.dim(), dims), inputs.slice(0, weight.data ? 3 : 2), dims, compute,
                {numbers, 1 + num_numbers});
}

tb_status loss_backward(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = MseLossBackward;
  const auto& which = *static_cast<const Loss*>(data);
  const auto& places = which.backward;
  View operands[4], out;
  auto& [grad, self, target, weight] = operands;
  if (!view_of(args[Op::grad_output], &grad) || !view_of(args[Op::self], &self) ||
      !view_of(args[Op::target], &target) || !view_of(args[places.result], &out) || !is_floating(self.type()) ||
      out.sizes != self.sizes || self.sizes != target.sizes || !take_weight(places, args, &weight) ||
      !spread_over(out, &grad) || !spread_over(out, &weight)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const bool has_number = places.number >= 0;
  const double numbers[2] = {static_cast<double>(args[places.reduction].v.i), has_number ? args[places.number].v.f : 0};
  return pointwise::compute_elements(context, *find_pointwise(which.derivative), out,
                                     {operands, places.weight >= 0 ? std::size_t{4} : std::size_t{3}},
                                     {numbers, has_number ? std::size_t{2} : std::size_t{1}}, compute_type(out.type()))
             ? TB_STATUS_OK
             : TB_STATUS_UNSUPPORTED;
}

// ---- classes ----

constexpr PointwiseEntry kZero{"zero", nullptr, "TB_PRIVATE T* out", "*out = 0;", nullptr, nullptr, "", "", 1, ""};
constexpr Skeleton kNll{"nll", "nll"};

/// PyTorch's kernels refuse others.
bool goes_with(const View& x, const View& other) {
  return !other.data || other.type() == x.type();
}

/// Without the dimension of classes.
View without_classes(const View& view) {
  return view.without_dim(view.dim() == 1 ? 0 : 1);
}

struct Classes {
  View operands[4]; // the loss and its weight or the gradient, target, x or grad
  View like;        // has the dimension of classes
  View weight;
  View total_weight; // of an average
  int64_t ignored;
};

tb_status run_classes(const tb_kernel_context& context, const Classes& classes, bool backward, ValueType compute) {
  const auto& operands = classes.operands;
  if (!computes(context.device, compute)) {
    return TB_STATUS_UNSUPPORTED;
  }
  Part part;
  part.sizes = operands[2].sizes;
  Specialization wanted(kNll);
  wanted.compute_in(compute).flag("BACKWARD", backward).parameters(7);
  for (std::size_t n = 0; n < 4; ++n) {
    part.strides[n] = operands[n].strides;
    if (operands[n].data && operands[n].sizes != part.sizes) {
      return TB_STATUS_UNSUPPORTED;
    }
    if (!operands[n].data) {
      part.strides[n].assign(part.sizes.size(), 0);
    }
    wanted.type("TYPE", static_cast<int>(n), operands[n].type());
  }
  const std::array<int, 4> order{3, 2, 0, 1};
  if (!part.collapse(4, order)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto class_dim = static_cast<std::size_t>(classes.like.dim() == 1 ? 0 : 1);
  const int64_t num_classes = classes.like.sizes[class_dim];
  const int64_t class_stride = classes.like.strides[class_dim];
  bool fits_32 = part.geometry.fits_32;
  for (int n = 0; n < 4; ++n) {
    fits_32 = fits_32 && part.reach(n) + num_classes * std::llabs(class_stride) < Geometry::kLimit32;
  }
  wanted.index_of(fits_32)
      .number("RANK", part.geometry.rank_class())
      .type("WEIGHT", classes.weight.type())
      .type("TOTAL_WEIGHT", classes.total_weight.type());
  const auto& function = find_function(context.device, wanted);
  ArgsStruct args;
  args.add(part.geometry.count);
  args.add(num_classes);
  args.add(classes.ignored);
  args.add(class_stride);
  args.add(classes.weight.data ? classes.weight.strides[0] : 0);
  args.add(fallible_operator("aten::nll_loss"));
  args.add_dims(part.geometry);
  Launch launch(context);
  for (const auto& operand : operands) {
    launch.pointer(operand.data ? operand.data : operands[0].data);
  }
  launch.pointer(classes.weight.data ? classes.weight.data : operands[0].data);
  launch.pointer(classes.total_weight.data ? classes.total_weight.data : operands[0].data);
  launch.pointer(error_cell(context.device));
  args.pass(launch);
  launch.run(function, part.geometry.count, 4);
  if (!backward) {
    fallible_launch(context.device, context.stream);
  }
  return TB_STATUS_OK;
}

tb_status nll(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::nll_loss_forward_output;
  static_assert(agree<Op, op::nll_loss2d_forward_output>());
  Classes classes{};
  View output, total_weight;
  if (!view_of(args[Op::self], &classes.like) || !is_floating(classes.like.type()) || classes.like.dim() == 0 ||
      !view_of(args[Op::target], &classes.operands[2]) || !optional_view(args[Op::weight], &classes.weight) ||
      !goes_with(classes.like, classes.weight) || !view_of(args[Op::output], &output) ||
      !view_of(args[Op::total_weight], &total_weight)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto compute = compute_type(classes.like.type());
  const int64_t how = args[Op::reduction].v.i;
  if (how != kNoReduction && output.dim() != 0) { // a number that stands for none
    return TB_STATUS_UNSUPPORTED;
  }
  classes.ignored = args[Op::ignore_index].v.i;
  classes.operands[3] = without_classes(classes.like);
  auto& target = classes.operands[2];
  if (target.dim() > classes.operands[3].dim() && target.numel() == 1) { // [1] for [C]
    target = View(target.data, target.type(), {});
    output = how == kNoReduction ? View(output.data, output.type(), {}) : output;
  }
  tb_status status = TB_STATUS_OK;
  if (how == kNoReduction && classes.operands[3].dim() > 0) {
    classes.operands[0] = output;
    status = run_classes(context, classes, /*backward=*/false, compute);
    return status != TB_STATUS_OK
               ? status
               : (pointwise::compute_elements(context, kZero, total_weight, {}, {}, compute) ? TB_STATUS_OK
                                                                                             : TB_STATUS_UNSUPPORTED);
  }
  View each[2];
  for (int i = 0; i < 2; ++i) {
    if (!temporary(context, compute, target.sizes, &each[i], &status)) {
      return status;
    }
    classes.operands[i] = each[i];
  }
  status = run_classes(context, classes, /*backward=*/false, compute);
  if (status != TB_STATUS_OK) {
    return status;
  }
  const int64_t num_dims = target.dim();
  const uint64_t dims = all_dims(num_dims);
  const auto reduced = [&](const View& view) {
    return view.numel() == 1 ? with_reduced(View(view.data, view.type(), {}), num_dims, dims) : view;
  };
  const View results[] = {reduced(output), reduced(total_weight)};
  return reduce(context, reduction("nll"), results, each, dims, compute, how == kMeanReduction ? 1.0 : 0.0);
}

tb_status nll_backward(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::nll_loss_backward_grad_input;
  static_assert(agree<Op, op::nll_loss2d_backward_grad_input>());
  Classes classes{};
  View grad, self, total_weight;
  if (!view_of(args[Op::grad_output], &grad) || !view_of(args[Op::self], &self) || !is_floating(self.type()) ||
      self.dim() == 0 || !view_of(args[Op::target], &classes.operands[2]) ||
      !optional_view(args[Op::weight], &classes.weight) || !goes_with(self, classes.weight) || !goes_with(self, grad) ||
      !view_of(args[Op::total_weight], &total_weight) || !view_of(args[Op::grad_input], &classes.like)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto compute = compute_type(self.type());
  classes.ignored = args[Op::ignore_index].v.i;
  classes.operands[0] = without_classes(classes.like);
  auto& target = classes.operands[2];
  if (target.dim() > classes.operands[0].dim() && target.numel() == 1) {
    target = View(target.data, target.type(), {});
  }
  if (args[Op::reduction].v.i == kMeanReduction) {
    classes.total_weight = total_weight;
  }
  if (!spread_over(target, &grad) || grad.sizes != target.sizes || classes.operands[0].sizes != target.sizes) {
    return TB_STATUS_UNSUPPORTED;
  }
  classes.operands[3] = grad;
  if (!pointwise::compute_elements(context, kZero, classes.like, {}, {}, compute)) {
    return TB_STATUS_UNSUPPORTED;
  }
  return run_classes(context, classes, /*backward=*/true, compute);
}

} // namespace

void add(Kernels& kernels) {
  kernels.add(MseLoss::kName, loss, 0, &kSquaredError);
  kernels.add(MseLossBackward::kName, loss_backward, 0, &kSquaredError);
  kernels.add(SmoothL1Loss::kName, loss, 0, &kSmoothL1);
  kernels.add(SmoothL1LossBackward::kName, loss_backward, 0, &kSmoothL1);
  kernels.add(HuberLoss::kName, loss, 0, &kHuber);
  kernels.add(HuberLossBackward::kName, loss_backward, 0, &kHuber);
  kernels.add(CrossEntropy::kName, loss, 0, &kBinaryCrossEntropy);
  kernels.add(CrossEntropyBackward::kName, loss_backward, 0, &kBinaryCrossEntropy);
  kernels.add(op::nll_loss_forward_output::kName, nll);
  kernels.add(op::nll_loss2d_forward_output::kName, nll);
  kernels.add(op::nll_loss_backward_grad_input::kName, nll_backward);
  kernels.add(op::nll_loss2d_backward_grad_input::kName, nll_backward);
}

} // namespace torch_backend::compiled::losses
