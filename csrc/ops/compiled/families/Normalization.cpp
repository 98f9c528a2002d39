// Normalization by mean and variance of rows, groups or channels, and what it does to gradients.

#include <algorithm>

#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/compiled/loops/Reduce.h"
#include "csrc/ops/compiled/loops/Rows.h"

namespace torch_backend::compiled::normalization {
namespace {

constexpr RowEntry kNormalizeRows{"normalize",
                                  1,
                                  "S(0) += x0;",
                                  "const T mean = a[0] / n;",
                                  1,
                                  "const T off = x0 - mean; S(0) += off * off;",
                                  "const T rstd = (T)1 / sqrt(b[0] / n + TB_SCALAR(0));",
                                  "out = (x0 - mean) * rstd * x1 + x2;",
                                  {"mean", "rstd"},
                                  false};
constexpr RowEntry kNormalizeRowsBackward{"normalize_backward",
                                          2,
                                          "const T by = x0 * x4; S(0) += by; S(1) += by * (x1 - x2);",
                                          "const T m0 = a[0] / n; const T m1 = a[1] * x3 * x3 / n;",
                                          0,
                                          "",
                                          "",
                                          "out = (x0 * x4 - m0 - (x1 - x2) * m1) * x3;",
                                          {},
                                          false};
constexpr PointwiseEntry kNormalize{
    "normalize",
    nullptr,
    "T x, T mean, T rstd, int has_weight, T weight, int has_bias, T bias, TB_PRIVATE T* out",
    "T y = (x - mean) * rstd; if (has_weight) y = y * weight; if (has_bias) y = y + bias; *out = y;",
    nullptr,
    nullptr,
    "",
    "",
    1,
    "tttTT"};
/// With the running variance.
constexpr PointwiseEntry kNormalizeByVariance{
    "normalize_by_variance",
    nullptr,
    "T x, T mean, T var, int has_weight, T weight, int has_bias, T bias, T eps, TB_PRIVATE T* out",
    "T y = (x - mean) * ((T)1 / sqrt(var + eps)); if (has_weight) y = y * weight; if (has_bias) y = y + bias; *out = "
    "y;",
    nullptr,
    nullptr,
    "",
    "",
    1,
    "tttTTn"};
constexpr PointwiseEntry kNormalizeBackward{
    "normalize_backward",
    nullptr,
    "T grad, T x, T mean, T rstd, T sum, T projected, int has_weight, T weight, T count, TB_PRIVATE T* out",
    "const T by = has_weight ? grad * weight : grad; *out = (by - sum / count - (x - mean) * rstd * (projected / "
    "count)) * rstd;",
    nullptr,
    nullptr,
    "",
    "",
    1,
    "ttttttTn"};
constexpr PointwiseEntry kScaleBackward{"scale_backward",
                                        nullptr,
                                        "T grad, T rstd, int has_weight, T weight, TB_PRIVATE T* out",
                                        "*out = has_weight ? grad * rstd * weight : grad * rstd;",
                                        nullptr,
                                        nullptr,
                                        "",
                                        "",
                                        1,
                                        "ttT"};
constexpr PointwiseEntry kAverage{"running_average",
                                  nullptr,
                                  "T running, T value, T momentum, TB_PRIVATE T* out",
                                  "*out = ((T)1 - momentum) * running + momentum * value;",
                                  nullptr,
                                  nullptr,
                                  "",
                                  "",
                                  1,
                                  "ttn"};
constexpr PointwiseEntry kConvert{"convert", nullptr, "T x, TB_PRIVATE T* out", "*out = x;", nullptr, nullptr, "", "",
                                  1,         "t"};
constexpr PointwiseEntry kRsqrt{"rstd_of_variance",
                                nullptr,
                                "T var, T eps, TB_PRIVATE T* out",
                                "*out = (T)1 / sqrt(var + eps);",
                                nullptr,
                                nullptr,
                                "",
                                "",
                                1,
                                "tn"};

/// A tensor that may be None; false if it is of a dtype that kernels do not take.
tb_status map(const tb_kernel_context& context, const PointwiseEntry& entry, const View& out,
              c10::ArrayRef<View> inputs, c10::ArrayRef<double> numbers, ValueType compute) {
  return pointwise::compute_elements(context, entry, out, inputs, numbers, compute) ? TB_STATUS_OK
                                                                                    : TB_STATUS_UNSUPPORTED;
}

#define TB_TRY(call)                                      \
  if (const auto tried = (call); tried != TB_STATUS_OK) { \
    return tried;                                         \
  }

/// Sums and averages before they are rounded to the dtype of `wanted`: its own memory where that holds them.
tb_status unrounded(const tb_kernel_context& context, const View& wanted, ValueType compute,
                    c10::ArrayRef<int64_t> sizes, View* view) {
  if (wanted.data && wanted.type() == compute) {
    *view = wanted;
    return TB_STATUS_OK;
  }
  tb_status status = TB_STATUS_OK;
  temporary(context, compute, sizes, view, &status);
  return status;
}

tb_status rounded(const tb_kernel_context& context, const View& wanted, const View& value, ValueType compute) {
  return wanted.data && wanted.data != value.data ? map(context, kConvert, wanted, value, {}, compute) : TB_STATUS_OK;
}

/// What to normalize, over `dims`. Weight and bias have the shape of x, repeated; mean and rstd have as many dimensions.
struct Normalized {
  View x;
  uint64_t dims;
  View weight, bias;
  double eps;
  ValueType compute;
};

/// `var` gets the unbiased variance; results without an address are not wanted.
tb_status statistics(const tb_kernel_context& context, const Normalized& of, const View& mean, const View& rstd,
                     const View& var, View* exact_mean, View* exact_rstd) {
  const Dims sizes = sizes_without(of.x, of.dims);
  TB_TRY(unrounded(context, mean, of.compute, sizes, exact_mean));
  TB_TRY(unrounded(context, rstd, of.compute, sizes, exact_rstd));
  TB_TRY(reduce(context, reduction("mean"), *exact_mean, of.x, of.dims, of.compute));
  const View inputs[] = {of.x, repeated_over(*exact_mean, of.x, of.dims)};
  if (var.data) {
    const View results[] = {*exact_rstd, var};
    TB_TRY(reduce(context, reduction("rstd_and_var"), results, inputs, of.dims, of.compute, of.eps));
  } else {
    TB_TRY(reduce(context, reduction("rstd"), *exact_rstd, inputs, of.dims, of.compute, of.eps));
  }
  TB_TRY(rounded(context, mean, *exact_mean, of.compute));
  return rounded(context, rstd, *exact_rstd, of.compute);
}

tb_status normalize(const tb_kernel_context& context, const Normalized& of, const View& out, const View& mean,
                    const View& rstd, const View& var = {}) {
  if (!var.data) {
    const View results[] = {out, mean, rstd};
    const View inputs[] = {of.x, of.weight, of.bias};
    const char* const absent[] = {"0", "1", "0"};
    const auto status = run_rows(context, kNormalizeRows, results, inputs, absent, of.dims, of.compute, of.eps);
    if (status != TB_STATUS_UNSUPPORTED) {
      return status;
    }
  }
  View exact_mean, exact_rstd;
  TB_TRY(statistics(context, of, mean, rstd, var, &exact_mean, &exact_rstd));
  const View inputs[] = {of.x, repeated_over(exact_mean, of.x, of.dims), repeated_over(exact_rstd, of.x, of.dims),
                         of.weight, of.bias};
  return map(context, kNormalize, out, inputs, {}, of.compute);
}

/// The gradient of x; mean and rstd have the shape of x, repeated.
tb_status normalize_backward(const tb_kernel_context& context, const Normalized& of, const View& grad, const View& mean,
                             const View& rstd, const View& grad_input) {
  const View row_inputs[] = {grad, of.x, mean, rstd, of.weight};
  const char* const absent[] = {"0", "0", "0", "0", "1"};
  const auto status = run_rows(context, kNormalizeRowsBackward, grad_input, row_inputs, absent, of.dims, of.compute);
  if (status != TB_STATUS_UNSUPPORTED) {
    return status;
  }
  const Dims sizes = sizes_without(of.x, of.dims);
  View sums[2];
  TB_TRY(unrounded(context, {}, of.compute, sizes, &sums[0]));
  TB_TRY(unrounded(context, {}, of.compute, sizes, &sums[1]));
  const c10::ArrayRef<View> inputs(row_inputs, of.weight.data ? 5 : 4);
  TB_TRY(reduce(context, reduction(of.weight.data ? "weighted_grad_sums" : "grad_sums"), sums, inputs, of.dims,
                of.compute));
  const View operands[] = {
      grad, of.x, mean, rstd, repeated_over(sums[0], of.x, of.dims), repeated_over(sums[1], of.x, of.dims), of.weight};
  return map(context, kNormalizeBackward, grad_input, operands,
             static_cast<double>(of.x.numel()) / static_cast<double>(View(nullptr, of.compute, sizes).numel()),
             of.compute);
}

/// The gradients of weight and bias, which are along the dimensions that are not in `dims`; one may have no address.
tb_status parameter_gradients(const tb_kernel_context& context, const View& grad, const View& x, const View& mean,
                              const View& rstd, const View& grad_weight, const View& grad_bias, uint64_t dims,
                              ValueType compute) {
  if (!grad_weight.data) {
    return grad_bias.data ? reduce(context, reduction("sum"), grad_bias, grad, dims, compute) : TB_STATUS_OK;
  }
  View results[] = {grad_bias, grad_weight};
  if (!grad_bias.data) {
    TB_TRY(unrounded(context, {}, compute, sizes_without(x, dims), &results[0]));
  }
  const View inputs[] = {grad, x, mean, rstd};
  return reduce(context, reduction("grad_sums"), results, inputs, dims, compute);
}

// ---- layers ----

uint64_t last_dims(int64_t num_dims, int64_t count) {
  return all_dims(num_dims) & ~all_dims(num_dims - count);
}

/// Weight or bias of the last dimensions, as `like`.
View repeated_before(const View& view, const View& like) {
  View result = view;
  while (view.data && result.dim() < like.dim()) {
    result.repeat(0, like.sizes[static_cast<std::size_t>(like.dim() - result.dim() - 1)]);
  }
  return result;
}

/// Whether the parameters that there are have one dtype, the input's or that which it is computed in: PyTorch's kernels
/// take no others.
bool go_with(const View& x, std::initializer_list<View> parameters) {
  ValueType type = ValueType::none;
  for (const auto& each : parameters) {
    if (each.data) {
      const bool goes = each.type() == x.type() || each.type() == compute_type(x.type());
      if (!goes || (type != ValueType::none && each.type() != type)) {
        return false;
      }
      type = each.type();
    }
  }
  return true;
}

tb_status layer_norm(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::native_layer_norm;
  Normalized of{};
  View out, mean, rstd;
  if (!view_of(args[Op::input], &of.x) || !is_floating(of.x.type()) || !optional_view(args[Op::weight], &of.weight) ||
      !optional_view(args[Op::bias], &of.bias) || !view_of(args[Op::result0], &out) ||
      !view_of(args[Op::result1], &mean) || !view_of(args[Op::result2], &rstd) ||
      !go_with(of.x, {of.weight, of.bias})) {
    return TB_STATUS_UNSUPPORTED;
  }
  of.weight = repeated_before(of.weight, of.x);
  of.bias = repeated_before(of.bias, of.x);
  of.dims = last_dims(of.x.dim(), args[Op::normalized_shape].length);
  of.eps = args[Op::eps].v.f;
  of.compute = compute_type(of.x.type());
  return normalize(context, of, out, mean, rstd);
}

tb_status layer_norm_backward(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::native_layer_norm_backward;
  Normalized of{};
  View grad, mean, rstd, grad_input, grad_weight, grad_bias;
  if (!view_of(args[Op::grad_out], &grad) || !view_of(args[Op::input], &of.x) || !is_floating(of.x.type()) ||
      !view_of(args[Op::mean], &mean) || !view_of(args[Op::rstd], &rstd) ||
      !optional_view(args[Op::weight], &of.weight) || !optional_view(args[Op::result0], &grad_input) ||
      !optional_view(args[Op::result1], &grad_weight) || !optional_view(args[Op::result2], &grad_bias)) {
    return TB_STATUS_UNSUPPORTED;
  }
  of.weight = repeated_before(of.weight, of.x);
  of.dims = last_dims(of.x.dim(), args[Op::normalized_shape].length);
  of.compute = compute_type(of.x.type());
  const uint64_t others = all_dims(of.x.dim()) & ~of.dims;
  mean = repeated_over(mean, of.x, of.dims);
  rstd = repeated_over(rstd, of.x, of.dims);
  if (grad_input.data && of.x.numel() > 0) {
    TB_TRY(normalize_backward(context, of, grad, mean, rstd, grad_input));
  }
  const auto of_parameter = [&](const View& view) { return view.data ? with_reduced(view, of.x.dim(), others) : view; };
  return parameter_gradients(context, grad, of.x, mean, rstd, of_parameter(grad_weight), of_parameter(grad_bias),
                             others, of.compute);
}

/// [N, C, ...] as [N, groups, C / groups, ...]
View by_group(const View& view, int64_t groups) {
  View result = view;
  const int64_t each = view.sizes[1] / groups;
  result.sizes[1] = each;
  result.sizes.insert(result.sizes.begin() + 1, groups);
  result.strides.insert(result.strides.begin() + 1, view.strides[1] * each);
  return result;
}

/// [C] as [groups, C / groups] along the second and third dimension of `like`.
View channels_by_group(const View& view, const View& like) {
  View result = view;
  if (view.data) {
    result.sizes = like.sizes;
    result.strides.assign(like.sizes.size(), 0);
    result.strides[1] = view.strides[0] * like.sizes[2];
    result.strides[2] = view.strides[0];
  }
  return result;
}

/// [N, groups] along the first two.
View groups_of(const View& view, int64_t num_dims) {
  View result = view;
  while (result.dim() < num_dims) {
    result.repeat(result.dim(), 1);
  }
  return result;
}

/// Whether the parameters that there are have a number for each channel: PyTorch's kernels refuse others, or have their
/// own way.
bool are_of_channels(const View& x, std::initializer_list<View> parameters) {
  return std::all_of(parameters.begin(), parameters.end(),
                     [&](const View& each) { return !each.data || (each.dim() == 1 && each.size(0) == x.size(1)); });
}

tb_status group_norm(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::native_group_norm;
  Normalized of{};
  View out, mean, rstd;
  if (!view_of(args[Op::input], &of.x) || !is_floating(of.x.type()) || of.x.dim() < 2 ||
      !optional_view(args[Op::weight], &of.weight) || !optional_view(args[Op::bias], &of.bias) ||
      !view_of(args[Op::result0], &out) || !view_of(args[Op::result1], &mean) || !view_of(args[Op::result2], &rstd) ||
      !go_with(of.x, {of.weight, of.bias}) || !are_of_channels(of.x, {of.weight, of.bias})) {
    return TB_STATUS_UNSUPPORTED;
  }
  const int64_t groups = args[Op::group].v.i;
  of.x = by_group(of.x, groups);
  of.weight = channels_by_group(of.weight, of.x);
  of.bias = channels_by_group(of.bias, of.x);
  of.dims = all_dims(of.x.dim()) & ~uint64_t{3};
  of.eps = args[Op::eps].v.f;
  of.compute = compute_type(of.x.type());
  return normalize(context, of, by_group(out, groups), groups_of(mean, of.x.dim()), groups_of(rstd, of.x.dim()));
}

tb_status group_norm_backward(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::native_group_norm_backward;
  Normalized of{};
  View grad, mean, rstd, grad_input, grad_weight, grad_bias;
  if (!view_of(args[Op::grad_out], &grad) || !view_of(args[Op::input], &of.x) || !is_floating(of.x.type()) ||
      of.x.dim() < 2 || !view_of(args[Op::mean], &mean) || !view_of(args[Op::rstd], &rstd) ||
      !optional_view(args[Op::weight], &of.weight) || !optional_view(args[Op::result0], &grad_input) ||
      !optional_view(args[Op::result1], &grad_weight) || !optional_view(args[Op::result2], &grad_bias)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const int64_t groups = args[Op::group].v.i;
  of.x = by_group(of.x, groups);
  grad = by_group(grad, groups);
  of.weight = channels_by_group(of.weight, of.x);
  of.dims = all_dims(of.x.dim()) & ~uint64_t{3};
  of.compute = compute_type(of.x.type());
  mean = repeated_over(groups_of(mean, of.x.dim()), of.x, of.dims);
  rstd = repeated_over(groups_of(rstd, of.x.dim()), of.x, of.dims);
  if (grad_input.data && of.x.numel() > 0) {
    TB_TRY(normalize_backward(context, of, grad, mean, rstd, by_group(grad_input, groups)));
  }
  return parameter_gradients(context, grad, of.x, mean, rstd, channels_by_group(grad_weight, of.x),
                             channels_by_group(grad_bias, of.x), all_dims(of.x.dim()) & ~uint64_t{6}, of.compute);
}

// ---- channels ----

uint64_t all_but_channels(const View& input) {
  return all_dims(input.dim()) & ~uint64_t{2};
}

View per_channel(const View& view, const View& input) {
  return view.data ? view.along(input, 1) : view;
}

/// As what a reduction over all but the channels writes.
View of_channels(const View& view, const View& input) {
  View result = per_channel(view, input);
  for (std::size_t d = 0; view.data && d < result.sizes.size(); ++d) {
    result.sizes[d] = d == 1 ? result.sizes[d] : 1;
  }
  return result;
}

tb_status update_running(const tb_kernel_context& context, const View& running, const View& value, double momentum,
                         ValueType compute) {
  if (!running.data) {
    return TB_STATUS_OK;
  }
  const View inputs[] = {running, value};
  return map(context, kAverage, running, inputs, momentum, compute);
}

tb_status batch_norm(const tb_kernel_context& context, Normalized& of, const View& running_mean,
                     const View& running_var, bool training, double momentum, const View& out, const View& save_mean,
                     const View& save_invstd) {
  if (!go_with(of.x, {of.weight, of.bias, running_mean, running_var}) ||
      !are_of_channels(of.x, {of.weight, of.bias, running_mean, running_var})) {
    return TB_STATUS_UNSUPPORTED;
  }
  of.compute = compute_type(of.x.type());
  of.dims = all_but_channels(of.x);
  of.weight = per_channel(of.weight, of.x);
  of.bias = per_channel(of.bias, of.x);
  if (!training) {
    const View inputs[] = {of.x, per_channel(running_mean, of.x), per_channel(running_var, of.x), of.weight, of.bias};
    return running_mean.data && running_var.data ? map(context, kNormalizeByVariance, out, inputs, of.eps, of.compute)
                                                 : TB_STATUS_UNSUPPORTED;
  }
  if (of.x.numel() == of.x.sizes[1] || !save_mean.data || !save_invstd.data) {
    return TB_STATUS_UNSUPPORTED;
  }
  View var, exact_mean, exact_rstd;
  const Dims sizes = sizes_without(of.x, of.dims);
  if (running_var.data) {
    TB_TRY(unrounded(context, {}, of.compute, sizes, &var));
  }
  TB_TRY(statistics(context, of, of_channels(save_mean, of.x), of_channels(save_invstd, of.x), var, &exact_mean,
                    &exact_rstd));
  const View inputs[] = {of.x, repeated_over(exact_mean, of.x, of.dims), repeated_over(exact_rstd, of.x, of.dims),
                         of.weight, of.bias};
  TB_TRY(map(context, kNormalize, out, inputs, {}, of.compute));
  TB_TRY(update_running(context, of_channels(running_mean, of.x), exact_mean, momentum, of.compute));
  return update_running(context, of_channels(running_var, of.x), var, momentum, of.compute);
}

template <class Op, bool kHasRunning, bool kHasTraining>
tb_status batch_norm_of(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  Normalized of{};
  View running_mean, running_var, out, save_mean, save_invstd;
  if (!view_of(args[Op::input], &of.x) || !is_floating(of.x.type()) || of.x.dim() < 2 ||
      !optional_view(args[Op::weight], &of.weight) || !optional_view(args[Op::bias], &of.bias) ||
      !view_of(args[Op::out], &out) || !optional_view(args[Op::save_mean], &save_mean) ||
      !optional_view(args[Op::save_invstd], &save_invstd)) {
    return TB_STATUS_UNSUPPORTED;
  }
  if constexpr (kHasRunning) {
    if (!optional_view(args[Op::running_mean], &running_mean) || !optional_view(args[Op::running_var], &running_var)) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  bool training = true;
  if constexpr (kHasTraining) {
    training = args[Op::training].v.i != 0;
  }
  of.eps = args[Op::eps].v.f;
  return batch_norm(context, of, running_mean, running_var, training, args[Op::momentum].v.f, out, save_mean,
                    save_invstd);
}

tb_status batch_norm_backward(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::native_batch_norm_backward;
  Normalized of{};
  View grad, running_mean, running_var, mean, rstd, grad_input, grad_weight, grad_bias;
  if (!view_of(args[Op::grad_out], &grad) || !view_of(args[Op::input], &of.x) || !is_floating(of.x.type()) ||
      of.x.dim() < 2 || !optional_view(args[Op::weight], &of.weight) ||
      !optional_view(args[Op::running_mean], &running_mean) || !optional_view(args[Op::running_var], &running_var) ||
      !optional_view(args[Op::save_mean], &mean) || !optional_view(args[Op::save_invstd], &rstd) ||
      !optional_view(args[Op::result0], &grad_input) || !optional_view(args[Op::result1], &grad_weight) ||
      !optional_view(args[Op::result2], &grad_bias) ||
      !are_of_channels(of.x, {of.weight, running_mean, running_var, mean, rstd})) {
    return TB_STATUS_UNSUPPORTED;
  }
  const bool training = args[Op::train].v.i != 0;
  of.compute = compute_type(of.x.type());
  of.dims = all_but_channels(of.x);
  of.weight = per_channel(of.weight, of.x);
  if (training) {
    if (!mean.data || !rstd.data) {
      return TB_STATUS_UNSUPPORTED;
    }
  } else {
    if (!running_mean.data || !running_var.data) {
      return TB_STATUS_UNSUPPORTED;
    }
    mean = running_mean;
    TB_TRY(unrounded(context, {}, of.compute, running_var.sizes, &rstd));
    TB_TRY(map(context, kRsqrt, rstd, running_var, args[Op::eps].v.f, of.compute));
  }
  mean = per_channel(mean, of.x);
  rstd = per_channel(rstd, of.x);
  if (grad_input.data && training) {
    TB_TRY(normalize_backward(context, of, grad, mean, rstd, grad_input));
  } else if (grad_input.data) {
    const View inputs[] = {grad, rstd, of.weight};
    TB_TRY(map(context, kScaleBackward, grad_input, inputs, {}, of.compute));
  }
  return parameter_gradients(context, grad, of.x, mean, rstd, of_channels(grad_weight, of.x),
                             of_channels(grad_bias, of.x), of.dims, of.compute);
}

#undef TB_TRY

template <class Op, bool kHasRunning, bool kHasTraining>
void add_batch_norm(Kernels& kernels) {
  kernels.add(Op::kName, batch_norm_of<Op, kHasRunning, kHasTraining>);
}

} // namespace

void add(Kernels& kernels) {
  kernels.add(op::native_layer_norm::kName, layer_norm);
  kernels.add(op::native_layer_norm_backward::kName, layer_norm_backward, kTakesEmpty);
  kernels.add(op::native_group_norm::kName, group_norm);
  kernels.add(op::native_group_norm_backward::kName, group_norm_backward, kTakesEmpty);
  add_batch_norm<op::native_batch_norm_out, true, true>(kernels);
  add_batch_norm<op::_native_batch_norm_legit_out, true, true>(kernels);
  add_batch_norm<op::_native_batch_norm_legit_no_stats_out, false, true>(kernels);
  add_batch_norm<op::_batch_norm_with_update_out, true, false>(kernels);
  kernels.add(op::native_batch_norm_backward::kName, batch_norm_backward);
}

} // namespace torch_backend::compiled::normalization
