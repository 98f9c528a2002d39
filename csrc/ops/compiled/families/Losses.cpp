// Losses, summed, averaged or for each element, and their gradients.

#include <string>

#include <c10/util/StringUtil.h>

#include "csrc/core/ErrorCell.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/families/Families.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/compiled/families/Reduce.h"

namespace torch_backend::compiled {
namespace {

constexpr int64_t kNoReduction = 0; // at::Reduction
constexpr int64_t kMeanReduction = 1;

struct Loss {
  bool has_weight;
  bool has_number; // beta, delta
  const char* reduction;
  const char* weighted_reduction;
  PointwiseEntry each;  // (x, y[, weight][, number])
  const char* backward; // of codegen/kernels/pointwise.yaml
};

constexpr PointwiseEntry each_of(const char* name, const char* parameters, const char* text, const char* kinds) {
  return {name, nullptr, parameters, text, nullptr, nullptr, "floating", "", 1, kinds};
}
constexpr Loss kSquaredError{
    false,
    false,
    "squared_error",
    nullptr,
    each_of("squared_error", "T x, T y, TB_PRIVATE T* out", "*out = tb_squared_error(x, y);", "tt"),
    "aten::mse_loss_backward.grad_input"};
constexpr Loss kSmoothL1{
    false,
    true,
    "smooth_l1",
    nullptr,
    each_of("smooth_l1", "T x, T y, T beta, TB_PRIVATE T* out", "*out = tb_smooth_l1(x, y, beta);", "ttn"),
    "aten::smooth_l1_loss_backward.grad_input"};
constexpr Loss kHuber{false,
                      true,
                      "huber",
                      nullptr,
                      each_of("huber", "T x, T y, T delta, TB_PRIVATE T* out", "*out = tb_huber(x, y, delta);", "ttn"),
                      "aten::huber_loss_backward.out"};
constexpr Loss kBinaryCrossEntropy{
    true,
    false,
    "binary_cross_entropy",
    "weighted_binary_cross_entropy",
    each_of("binary_cross_entropy", "T x, T y, int has_weight, T weight, TB_PRIVATE T* out",
            "*out = tb_binary_cross_entropy(x, y) * (has_weight ? weight : TC(1.0));", "ttT"),
    "aten::binary_cross_entropy_backward.grad_input"};

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

/// (self, target, weight or not, reduction, number or not, out)
tb_status loss(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto& which = *static_cast<const Loss*>(data);
  View operands[3], out;
  const int32_t at = which.has_weight ? 3 : 2;
  if (!view_of(args[0], &operands[0]) || !view_of(args[1], &operands[1]) || !view_of(args[num_args - 1], &out) ||
      !is_floating(operands[0].type()) || operands[0].sizes != operands[1].sizes ||
      (which.has_weight && args[2].tag != TB_ARG_NONE && !view_of(args[2], &operands[2])) ||
      !spread_over(operands[0], &operands[2])) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto compute = compute_type(out.type());
  if (&which == &kBinaryCrossEntropy) {
    auto status = expect_probabilities(context, operands[0],
                                       "aten::binary_cross_entropy: all elements of input should be between 0 and 1");
    if (status == TB_STATUS_OK) {
      status = expect_probabilities(context, operands[1],
                                    "aten::binary_cross_entropy: all elements of target should be between 0 and 1");
    }
    if (status != TB_STATUS_OK) {
      return status;
    }
  }
  const int64_t how = args[at].v.i;
  const double numbers[2] = {how == kMeanReduction ? 1.0 : 0.0, which.has_number ? args[at + 1].v.f : 0};
  const std::size_t num_numbers = which.has_number ? 1 : 0;
  const c10::ArrayRef<View> inputs(operands, which.has_weight ? 3 : 2);
  if (out.sizes == operands[0].sizes) { // whatever number says so
    return compute_elements(context, which.each, out, inputs, {numbers + 1, num_numbers}, compute)
               ? TB_STATUS_OK
               : TB_STATUS_UNSUPPORTED;
  }
  const uint64_t dims = all_dims(operands[0].dim());
  const bool weighted = operands[2].data != nullptr;
  return reduce(context, reduction(weighted ? which.weighted_reduction : which.reduction),
                with_reduced(out, operands[0].dim(), dims), inputs.slice(0, weighted ? 3 : 2), dims, compute,
                {numbers, 1 + num_numbers});
}

/// (grad_output, self, target, weight or not, reduction, number or not, grad_input)
tb_status loss_backward(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto& which = *static_cast<const Loss*>(data);
  View operands[4], out;
  const int32_t at = which.has_weight ? 4 : 3;
  if (!view_of(args[0], &operands[0]) || !view_of(args[1], &operands[1]) || !view_of(args[2], &operands[2]) ||
      !view_of(args[num_args - 1], &out) || !is_floating(operands[1].type()) || out.sizes != operands[1].sizes ||
      operands[1].sizes != operands[2].sizes ||
      (which.has_weight && args[3].tag != TB_ARG_NONE && !view_of(args[3], &operands[3])) ||
      !spread_over(out, &operands[0]) || !spread_over(out, &operands[3])) {
    return TB_STATUS_UNSUPPORTED;
  }
  const double numbers[2] = {static_cast<double>(args[at].v.i), which.has_number ? args[at + 1].v.f : 0};
  return compute_elements(context, *find_pointwise(which.backward), out,
                          {operands, which.has_weight ? std::size_t{4} : std::size_t{3}},
                          {numbers, which.has_number ? std::size_t{2} : std::size_t{1}}, compute_type(out.type()))
             ? TB_STATUS_OK
             : TB_STATUS_UNSUPPORTED;
}

// ---- classes ----

constexpr PointwiseEntry kZero{"zero", nullptr, "TB_PRIVATE T* out", "*out = 0;", nullptr, nullptr, "", "", 1, ""};
constexpr char kForwardKey = 0;
constexpr char kBackwardKey = 0;

/// PyTorch's kernels refuse others.
bool goes_with(const View& x, const View& other) {
  return !other.data || other.type() == x.type();
}

/// Without the dimension of classes.
View without_classes(const View& view) {
  return view.without_dim(view.dim() == 1 ? 0 : 1);
}

struct Classes {
  View operands[4]; // see the skeleton
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
  KernelKey key{backward ? &kBackwardKey : &kForwardKey};
  for (std::size_t n = 0; n < 4; ++n) {
    part.strides[n] = operands[n].strides;
    if (operands[n].data && operands[n].sizes != part.sizes) {
      return TB_STATUS_UNSUPPORTED;
    }
    if (!operands[n].data) {
      part.strides[n].assign(part.sizes.size(), 0);
    }
    key.words[0] = key.words[0] << 5 | static_cast<uint64_t>(operands[n].type());
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
  key.words[1] = static_cast<uint64_t>(compute) << 16 | static_cast<uint64_t>(part.geometry.rank_class()) << 12 |
                 static_cast<uint64_t>(classes.weight.type()) << 6 |
                 static_cast<uint64_t>(classes.total_weight.type()) << 1 | static_cast<uint64_t>(fits_32);
  const auto& function = find_function(context.device, key, "nll", "nll", [&](SourceText& text) {
    text.compute_in(compute);
    text.index_of(fits_32);
    text.define("RANK", part.geometry.rank_class());
    text.define("TARGET(i)", c10::str("TB_LOAD_", name_of(operands[2].type()), "(p2, i)"));
    text.define("X(i)", c10::str("(T)TB_LOAD_", name_of(operands[3].type()), "(p3, i)"));
    text.define("W(i)", classes.weight.data ? c10::str("(T)TB_LOAD_", name_of(classes.weight.type()), "(p4, i)")
                                            : std::string("(T)1"));
    text.define("STORE_0(i, x)", c10::str("TB_STORE_", name_of(operands[0].type()), "(p0, i, (x))"));
    text.define("STORE_1(i, x)",
                operands[1].data ? c10::str("TB_STORE_", name_of(operands[1].type()), "(p1, i, (x))") : std::string());
    text.define("AVERAGE", classes.total_weight.data
                               ? c10::str("grad = grad / (T)TB_LOAD_", name_of(classes.total_weight.type()), "(p5, 0);")
                               : std::string());
    if (backward) {
      text.define("BACKWARD", 1);
    }
    text.parameters(7);
  });
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

/// (self, target, weight, reduction, ignore_index, output, total_weight)
tb_status nll(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  Classes classes{};
  View output, total_weight;
  if (!view_of(args[0], &classes.like) || !is_floating(classes.like.type()) || classes.like.dim() == 0 ||
      !view_of(args[1], &classes.operands[2]) || !optional_view(args[2], &classes.weight) ||
      !goes_with(classes.like, classes.weight) || !view_of(args[5], &output) || !view_of(args[6], &total_weight)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto compute = compute_type(classes.like.type());
  const int64_t how = args[3].v.i;
  if (how != kNoReduction && output.dim() != 0) { // a number that stands for none
    return TB_STATUS_UNSUPPORTED;
  }
  classes.ignored = args[4].v.i;
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
               : (compute_elements(context, kZero, total_weight, {}, {}, compute) ? TB_STATUS_OK
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

/// (grad_output, self, target, weight, reduction, ignore_index, total_weight, grad_input)
tb_status nll_backward(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  Classes classes{};
  View grad, self, total_weight;
  if (!view_of(args[0], &grad) || !view_of(args[1], &self) || !is_floating(self.type()) || self.dim() == 0 ||
      !view_of(args[2], &classes.operands[2]) || !optional_view(args[3], &classes.weight) ||
      !goes_with(self, classes.weight) || !goes_with(self, grad) || !view_of(args[6], &total_weight) ||
      !view_of(args[7], &classes.like)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto compute = compute_type(self.type());
  classes.ignored = args[5].v.i;
  classes.operands[0] = without_classes(classes.like);
  auto& target = classes.operands[2];
  if (target.dim() > classes.operands[0].dim() && target.numel() == 1) {
    target = View(target.data, target.type(), {});
  }
  if (args[4].v.i == kMeanReduction) {
    classes.total_weight = total_weight;
  }
  if (!spread_over(target, &grad) || grad.sizes != target.sizes || classes.operands[0].sizes != target.sizes) {
    return TB_STATUS_UNSUPPORTED;
  }
  classes.operands[3] = grad;
  if (!compute_elements(context, kZero, classes.like, {}, {}, compute)) {
    return TB_STATUS_UNSUPPORTED;
  }
  return run_classes(context, classes, /*backward=*/true, compute);
}

} // namespace

void add_losses(Kernels& kernels) {
  kernels.add("aten::mse_loss.out", loss, 0, &kSquaredError);
  kernels.add("aten::mse_loss_backward.grad_input", loss_backward, 0, &kSquaredError);
  kernels.add("aten::smooth_l1_loss.out", loss, 0, &kSmoothL1);
  kernels.add("aten::smooth_l1_loss_backward.grad_input", loss_backward, 0, &kSmoothL1);
  kernels.add("aten::huber_loss.out", loss, 0, &kHuber);
  kernels.add("aten::huber_loss_backward.out", loss_backward, 0, &kHuber);
  kernels.add("aten::binary_cross_entropy.out", loss, 0, &kBinaryCrossEntropy);
  kernels.add("aten::binary_cross_entropy_backward.grad_input", loss_backward, 0, &kBinaryCrossEntropy);
  for (const char* overload : {"aten::nll_loss_forward.output", "aten::nll_loss2d_forward.output"}) {
    kernels.add(overload, nll);
  }
  for (const char* overload : {"aten::nll_loss_backward.grad_input", "aten::nll_loss2d_backward.grad_input"}) {
    kernels.add(overload, nll_backward);
  }
}

} // namespace torch_backend::compiled
