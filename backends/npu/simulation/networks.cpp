// Softmax, normalizations, pooling, losses, mixed precision.
#include "operator.h"

using namespace sim;

#define SOFTMAX(NAME, RESULT)                                                                                     \
  SIM_OPERATOR(NAME, const aclTensor* self, int64_t dim, aclTensor* out) {                                        \
    return plan("aclnn" #NAME, workspace, executor, {in(self), in(out)}, 512,                                     \
                [=](tensors& v) { write(v[1], RESULT(v[0], dim, false)); });                                      \
  }                                                                                                               \
  SIM_OPERATOR(NAME##Backward, const aclTensor* gradient, const aclTensor* output, int64_t dim, aclTensor* out) { \
    return plan("aclnn" #NAME "Backward", workspace, executor, {in(gradient), in(output), in(out)}, 512,          \
                [=](tensors& v) { write(v[2], RESULT##_backward_data(v[0], v[1], dim, v[1].scalar_type())); });   \
  }

SOFTMAX(Softmax, at::_softmax)
SOFTMAX(LogSoftmax, at::_log_softmax)

// ---- normalizations: in float where tensors are halves ----

namespace {

at::Tensor wide(const at::Tensor& x) {
  return x.defined() && at::isReducedFloatingType(x.scalar_type()) ? x.to(at::kFloat) : x;
}

int read_mask(const char* name, const aclBoolArray* mask, std::initializer_list<const aclTensor*> outputs,
              std::array<bool, 3>* out_mask) {
  if (!mask || mask->size() != 3) return refuse(kNullParameter, "%s: outputMask", name);
  for (size_t i = 0; i < 3; ++i)
    if (((*out_mask)[i] = (*mask)[i]) && !outputs.begin()[i])
      return refuse(kNullParameter, "%s: output %zu is NULL", name, i);
  return kOk;
}

} // namespace

SIM_OPERATOR(LayerNorm, const aclTensor* input, const aclIntArray* shape, const aclTensor* weight,
             const aclTensor* bias, double eps, aclTensor* out, aclTensor* mean, aclTensor* rstd) {
  if (!shape || shape->empty()) return refuse(kNullParameter, "aclnnLayerNorm: normalizedShape");
  return plan("aclnnLayerNorm", workspace, executor,
              {in(input), maybe(weight), maybe(bias), in(out), maybe(mean), maybe(rstd)}, 512,
              [=, s = *shape](tensors& v) {
                const auto [y, m, r] = at::native_layer_norm(wide(v[0]), s, wide(v[1]), wide(v[2]), eps);
                write(v[3], y), write(v[4], m), write(v[5], r);
              });
}

SIM_OPERATOR(LayerNormBackward, const aclTensor* gradient, const aclTensor* input, const aclIntArray* shape,
             const aclTensor* mean, const aclTensor* rstd, const aclTensor* weight, const aclTensor* bias,
             const aclBoolArray* mask, aclTensor* of_input, aclTensor* of_weight, aclTensor* of_bias) {
  std::array<bool, 3> of{};
  if (!shape) return refuse(kNullParameter, "aclnnLayerNormBackward: normalizedShape");
  if (const int error = read_mask("aclnnLayerNormBackward", mask, {of_input, of_weight, of_bias}, &of)) return error;
  return plan("aclnnLayerNormBackward", workspace, executor,
              {in(gradient), in(input), in(mean), in(rstd), maybe(weight), maybe(bias), maybe(of_input),
               maybe(of_weight), maybe(of_bias)},
              512, [=, s = *shape](tensors& v) {
                const auto [x, w, b] = at::native_layer_norm_backward(wide(v[0]), wide(v[1]), s, wide(v[2]), wide(v[3]),
                                                                      wide(v[4]), wide(v[5]), of);
                if (of[0]) write(v[6], x);
                if (of[1]) write(v[7], w);
                if (of[2]) write(v[8], b);
              });
}

SIM_OPERATOR(BatchNorm, const aclTensor* input, const aclTensor* weight, const aclTensor* bias,
             const aclTensor* running_mean, const aclTensor* running_variance, bool training, double momentum,
             double eps, aclTensor* out, aclTensor* save_mean, aclTensor* save_scale) {
  if (!training && (!running_mean || !running_variance))
    return refuse(kNullParameter, "aclnnBatchNorm: no running statistics, and not training");
  return plan("aclnnBatchNorm", workspace, executor,
              {in(input), maybe(weight), maybe(bias), maybe(running_mean), maybe(running_variance), in(out),
               in(save_mean), in(save_scale)},
              512, [=](tensors& v) {
                const at::Tensor means = wide(v[3]), variances = wide(v[4]);
                const auto [y, mean, scale] = at::native_batch_norm(wide(v[0]), wide(v[1]), wide(v[2]), means,
                                                                    variances, training, momentum, eps);
                write(v[5], y);
                if (!training) return;
                write(v[3], means), write(v[4], variances), write(v[6], mean), write(v[7], scale);
              });
}

SIM_OPERATOR(BatchNormBackward, const aclTensor* gradient, const aclTensor* input, const aclTensor* weight,
             const aclTensor* running_mean, const aclTensor* running_variance, const aclTensor* save_mean,
             const aclTensor* save_scale, bool training, double eps, const aclBoolArray* mask, aclTensor* of_input,
             aclTensor* of_weight, aclTensor* of_bias) {
  std::array<bool, 3> of{};
  if (const int error = read_mask("aclnnBatchNormBackward", mask, {of_input, of_weight, of_bias}, &of)) return error;
  if (training ? !save_mean || !save_scale : !running_mean || !running_variance)
    return refuse(kNullParameter, "aclnnBatchNormBackward: the statistics");
  return plan("aclnnBatchNormBackward", workspace, executor,
              {in(gradient), in(input), maybe(weight), maybe(running_mean), maybe(running_variance), maybe(save_mean),
               maybe(save_scale), maybe(of_input), maybe(of_weight), maybe(of_bias)},
              512, [=](tensors& v) {
                const auto [x, w, b] =
                    at::native_batch_norm_backward(wide(v[0]), wide(v[1]), wide(v[2]), wide(v[3]), wide(v[4]),
                                                   wide(v[5]), wide(v[6]), training, eps, of);
                if (of[0]) write(v[7], x);
                if (of[1]) write(v[8], w);
                if (of[2]) write(v[9], b);
              });
}

// ---- pooling ----

namespace {

int check_window(const char* name, std::initializer_list<const aclIntArray*> lists) {
  for (const aclIntArray* list : lists)
    if (!list || list->size() != 2) return refuse(kInvalidParameter, "%s: lists have two elements", name);
  return kOk;
}

} // namespace

SIM_OPERATOR(MaxPool2dWithIndices, const aclTensor* self, const aclIntArray* kernel, const aclIntArray* stride,
             const aclIntArray* padding, const aclIntArray* dilation, bool ceil, aclTensor* out, aclTensor* places) {
  constexpr char name[] = "aclnnMaxPool2dWithIndices";
  if (const int error = check_window(name, {kernel, stride, padding, dilation})) return error;
  if (!places || places->dtype != at::kInt) return refuse(kInvalidParameter, "%s: places are int32", name);
  return plan(name, workspace, executor, {in(self), in(out), in(places)}, 512,
              [=, k = *kernel, s = *stride, p = *padding, d = *dilation](tensors& v) {
                const auto [best, where] = at::max_pool2d_with_indices(v[0], k, s, p, d, ceil);
                write(v[1], best), write(v[2], where);
              });
}

SIM_OPERATOR(MaxPool2dWithIndicesBackward, const aclTensor* gradient, const aclTensor* self, const aclTensor* places,
             const aclIntArray* kernel, const aclIntArray* stride, const aclIntArray* padding,
             const aclIntArray* dilation, bool ceil, aclTensor* out) {
  constexpr char name[] = "aclnnMaxPool2dWithIndicesBackward";
  if (const int error = check_window(name, {kernel, stride, padding, dilation})) return error;
  if (!places || places->dtype != at::kInt) return refuse(kInvalidParameter, "%s: places are int32", name);
  return plan(name, workspace, executor, {in(gradient), in(self), in(places), in(out)}, 512,
              [=, k = *kernel, s = *stride, p = *padding, d = *dilation](tensors& v) {
                write(v[3], at::max_pool2d_with_indices_backward(v[0], v[1], k, s, p, d, ceil, v[2].to(at::kLong)));
              });
}

SIM_OPERATOR(AvgPool2d, const aclTensor* self, const aclIntArray* kernel, const aclIntArray* stride,
             const aclIntArray* padding, bool ceil, bool count_padding, int64_t divisor, int8_t, aclTensor* out) {
  if (const int error = check_window("aclnnAvgPool2d", {kernel, stride, padding})) return error;
  const auto by = divisor ? std::optional(divisor) : std::nullopt;
  return plan("aclnnAvgPool2d", workspace, executor, {in(self), in(out)}, 512,
              [=, k = *kernel, s = *stride, p = *padding](tensors& v) {
                write(v[1], at::avg_pool2d(v[0], k, s, p, ceil, count_padding, by));
              });
}

SIM_OPERATOR(AvgPool2dBackward, const aclTensor* gradient, const aclTensor* self, const aclIntArray* kernel,
             const aclIntArray* stride, const aclIntArray* padding, bool ceil, bool count_padding, int64_t divisor,
             int8_t, aclTensor* out) {
  if (const int error = check_window("aclnnAvgPool2dBackward", {kernel, stride, padding})) return error;
  const auto by = divisor ? std::optional(divisor) : std::nullopt;
  return plan("aclnnAvgPool2dBackward", workspace, executor, {in(gradient), in(self), in(out)}, 512,
              [=, k = *kernel, s = *stride, p = *padding](tensors& v) {
                write(v[2], at::avg_pool2d_backward(v[0], v[1], k, s, p, ceil, count_padding, by));
              });
}

// ---- losses ----

SIM_OPERATOR(NLLLoss, const aclTensor* self, const aclTensor* target, const aclTensor* weight, int64_t reduction,
             int64_t ignored, aclTensor* out, aclTensor* total_weight) {
  return plan("aclnnNLLLoss", workspace, executor, {in(self), in(target), in(weight), in(out), in(total_weight)}, 512,
              [=](tensors& v) {
                const auto [loss, total] = at::nll_loss_forward(v[0], v[1], v[2], reduction, ignored);
                write(v[3], loss), write(v[4], total);
              });
}

SIM_OPERATOR(NLLLossBackward, const aclTensor* gradient, const aclTensor* self, const aclTensor* target,
             const aclTensor* weight, int64_t reduction, int64_t ignored, const aclTensor* total_weight,
             aclTensor* out) {
  return plan("aclnnNLLLossBackward", workspace, executor,
              {in(gradient), in(self), in(target), in(weight), in(total_weight), in(out)}, 512, [=](tensors& v) {
                write(v[5], at::nll_loss_backward(v[0], v[1], v[2], v[3], reduction, ignored, v[4]));
              });
}

SIM_OPERATOR(MseLoss, const aclTensor* self, const aclTensor* target, int64_t reduction, aclTensor* out) {
  return plan("aclnnMseLoss", workspace, executor, {in(self), in(target), in(out)}, 512,
              [=](tensors& v) { write(v[2], at::mse_loss(v[0], v[1], reduction)); });
}

SIM_OPERATOR(MseLossBackward, const aclTensor* gradient, const aclTensor* self, const aclTensor* target,
             int64_t reduction, aclTensor* out) {
  return plan("aclnnMseLossBackward", workspace, executor, {in(gradient), in(self), in(target), in(out)}, 512,
              [=](tensors& v) { write(v[3], at::mse_loss_backward(v[0], v[1], v[2], reduction)); });
}

// ---- mixed precision ----

SIM_OPERATOR(ForeachNonFiniteCheckAndUnscale, const aclTensorList* gradients, aclTensor* found,
             const aclTensor* inverse_scale) {
  if (!gradients) return refuse(kNullParameter, "aclnnForeachNonFiniteCheckAndUnscale: the list is NULL");
  return plan(
      "aclnnForeachNonFiniteCheckAndUnscale", workspace, executor, {in(found), in(inverse_scale)}, 512,
      [count = gradients->size()](tensors& v) {
        for (size_t i = 0; i < count; ++i) {
          if (!at::isfinite(v[i]).all().item<bool>()) v[count].fill_(1);
          v[i].mul_(v[count + 1]);
        }
      },
      gradients);
}
