// Softmax, normalizations, pooling, losses, mixed precision.
#include <algorithm>

#include "operator.h"

using namespace sim;

namespace {

// Rows along a dimension, of dense values: f(start, step, length).
template <typename F>
void each_row(const view& v, int64_t dim, F f) {
  const int64_t d = v.dim() ? wrapped(dim, v.dim()) : 0;
  const int64_t length = v.dim() ? v.sizes[static_cast<size_t>(d)] : 1;
  const int64_t before = v.extent_before(d), after = v.dim() ? v.extent_after(d) : 1;
  for (int64_t i = 0; i < before; ++i)
    for (int64_t j = 0; j < after; ++j)
      f(static_cast<size_t>(i * length * after + j), static_cast<size_t>(after), static_cast<size_t>(length));
}

int softmax(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* self, int64_t dim,
            aclTensor* out, bool logarithm) {
  return plan(name, workspace, executor, {in(self), in(out)}, 512, [=](std::vector<view>& v) {
    auto x = v[0].load();
    each_row(v[0], dim, [&](size_t start, size_t step, size_t length) {
      double best = -INFINITY, sum = 0;
      for (size_t i = 0; i < length; ++i) best = std::max(best, x[start + i * step]);
      for (size_t i = 0; i < length; ++i) sum += std::exp(x[start + i * step] - best);
      for (size_t i = 0; i < length; ++i) {
        double& value = x[start + i * step];
        value = logarithm ? value - best - std::log(sum) : std::exp(value - best) / sum;
      }
    });
    v[1].save(x);
  });
}

int softmax_backward(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* gradient,
                     const aclTensor* output, int64_t dim, aclTensor* out, bool logarithm) {
  return plan(name, workspace, executor, {in(gradient), in(output), in(out)}, 512, [=](std::vector<view>& v) {
    auto g = v[0].load();
    const auto y = v[1].load();
    each_row(v[0], dim, [&](size_t start, size_t step, size_t length) {
      double sum = 0;
      for (size_t i = start; i < start + length * step; i += step) sum += logarithm ? g[i] : g[i] * y[i];
      for (size_t i = start; i < start + length * step; i += step)
        g[i] = logarithm ? g[i] - std::exp(y[i]) * sum : y[i] * (g[i] - sum);
    });
    v[2].save(g);
  });
}

} // namespace

SIM_OPERATOR(Softmax, const aclTensor* self, int64_t dim, aclTensor* out) {
  return softmax("aclnnSoftmax", workspace, executor, self, dim, out, false);
}
SIM_OPERATOR(LogSoftmax, const aclTensor* self, int64_t dim, aclTensor* out) {
  return softmax("aclnnLogSoftmax", workspace, executor, self, dim, out, true);
}
SIM_OPERATOR(SoftmaxBackward, const aclTensor* gradient, const aclTensor* output, int64_t dim, aclTensor* out) {
  return softmax_backward("aclnnSoftmaxBackward", workspace, executor, gradient, output, dim, out, false);
}
SIM_OPERATOR(LogSoftmaxBackward, const aclTensor* gradient, const aclTensor* output, int64_t dim, aclTensor* out) {
  return softmax_backward("aclnnLogSoftmaxBackward", workspace, executor, gradient, output, dim, out, true);
}

// ---- normalizations ----

namespace {

std::vector<double> load_or(const view& v, size_t count, double otherwise) {
  return v ? v.load() : std::vector<double>(count, otherwise);
}

size_t product_of(const std::vector<int64_t>& sizes) {
  size_t n = 1;
  for (const int64_t size : sizes) n *= static_cast<size_t>(size);
  return n;
}

struct moments {
  double mean = 0, variance = 0;
};

// Of the values at `each` of a set of places.
template <typename Places>
moments moments_of(const std::vector<double>& x, const Places& places) {
  moments m;
  for (const size_t at : places) m.mean += x[at];
  m.mean /= static_cast<double>(places.size());
  for (const size_t at : places) m.variance += (x[at] - m.mean) * (x[at] - m.mean);
  m.variance /= static_cast<double>(places.size());
  return m;
}

std::vector<size_t> row_places(size_t row, size_t length) {
  std::vector<size_t> places(length);
  for (size_t i = 0; i < length; ++i) places[i] = row * length + i;
  return places;
}

// Of a channel of a batch of images.
std::vector<size_t> channel_places(const view& v, size_t channel) {
  const auto n = static_cast<size_t>(v.sizes[0]), channels = static_cast<size_t>(v.sizes[1]);
  const auto plane = static_cast<size_t>(v.extent_after(1));
  std::vector<size_t> places;
  for (size_t image = 0; image < n; ++image)
    for (size_t i = 0; i < plane; ++i) places.push_back((image * channels + channel) * plane + i);
  return places;
}

} // namespace

SIM_OPERATOR(LayerNorm, const aclTensor* input, const aclIntArray* shape, const aclTensor* weight,
             const aclTensor* bias, double eps, aclTensor* out, aclTensor* mean, aclTensor* rstd) {
  if (!shape || shape->values.empty()) return refuse(kNullParameter, "aclnnLayerNorm: normalizedShape");
  const size_t length = product_of(shape->values);
  return plan("aclnnLayerNorm", workspace, executor,
              {in(input), maybe(weight), maybe(bias), in(out), maybe(mean), maybe(rstd)}, 512,
              [=](std::vector<view>& v) {
                auto x = v[0].load();
                const auto w = load_or(v[1], length, 1), b = load_or(v[2], length, 0);
                std::vector<double> means, scales;
                for (size_t row = 0; row < x.size() / length; ++row) {
                  const moments m = moments_of(x, row_places(row, length));
                  means.push_back(m.mean);
                  scales.push_back(1 / std::sqrt(m.variance + eps));
                  for (size_t i = 0; i < length; ++i)
                    x[row * length + i] = (x[row * length + i] - m.mean) * scales.back() * w[i] + b[i];
                }
                v[3].save(x);
                if (v[4]) v[4].save(means);
                if (v[5]) v[5].save(scales);
              });
}

SIM_OPERATOR(LayerNormBackward, const aclTensor* gradient, const aclTensor* input, const aclIntArray* shape,
             const aclTensor* mean, const aclTensor* rstd, const aclTensor* weight, const aclTensor* bias,
             const aclBoolArray* mask, aclTensor* of_input, aclTensor* of_weight, aclTensor* of_bias) {
  if (!shape || !mask || mask->values.size() != 3) return refuse(kNullParameter, "aclnnLayerNormBackward: lists");
  const aclTensor* wanted[] = {of_input, of_weight, of_bias};
  for (size_t i = 0; i < 3; ++i)
    if (mask->values[i] && !wanted[i]) return refuse(kNullParameter, "aclnnLayerNormBackward: output %zu is NULL", i);
  const size_t length = product_of(shape->values);
  return plan("aclnnLayerNormBackward", workspace, executor,
              {in(gradient), in(input), in(mean), in(rstd), maybe(weight), maybe(bias), maybe(of_input),
               maybe(of_weight), maybe(of_bias)},
              512, [=](std::vector<view>& v) {
                const auto g = v[0].load(), x = v[1].load(), means = v[2].load(), scales = v[3].load();
                const auto w = load_or(v[4], length, 1);
                std::vector<double> to_input(x.size()), to_weight(length), to_bias(length);
                for (size_t row = 0; row < x.size() / length; ++row) {
                  double sum = 0, sum_of_products = 0;
                  for (size_t i = 0; i < length; ++i) {
                    const size_t at = row * length + i;
                    const double normal = (x[at] - means[row]) * scales[row];
                    sum += g[at] * w[i];
                    sum_of_products += g[at] * w[i] * normal;
                    to_weight[i] += g[at] * normal;
                    to_bias[i] += g[at];
                  }
                  const auto n = static_cast<double>(length);
                  for (size_t i = 0; i < length; ++i) {
                    const size_t at = row * length + i;
                    const double normal = (x[at] - means[row]) * scales[row];
                    to_input[at] = scales[row] * (g[at] * w[i] - sum / n - normal * sum_of_products / n);
                  }
                }
                if (v[6]) v[6].save(to_input);
                if (v[7]) v[7].save(to_weight);
                if (v[8]) v[8].save(to_bias);
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
              512, [=](std::vector<view>& v) {
                auto x = v[0].load();
                const auto channels = static_cast<size_t>(v[0].sizes[1]);
                const auto w = load_or(v[1], channels, 1), b = load_or(v[2], channels, 0);
                auto means = load_or(v[3], channels, 0), variances = load_or(v[4], channels, 1);
                std::vector<double> used_means(channels), used_scales(channels);
                for (size_t c = 0; c < channels; ++c) {
                  const auto places = channel_places(v[0], c);
                  moments m{means[c], variances[c]};
                  if (training) {
                    m = moments_of(x, places);
                    const auto n = static_cast<double>(places.size());
                    means[c] = (1 - momentum) * means[c] + momentum * m.mean;
                    variances[c] = (1 - momentum) * variances[c] + momentum * m.variance * n / (n - 1);
                  }
                  used_means[c] = m.mean;
                  used_scales[c] = 1 / std::sqrt(m.variance + eps);
                  for (const size_t at : places) x[at] = (x[at] - m.mean) * used_scales[c] * w[c] + b[c];
                }
                v[5].save(x);
                if (!training) return;
                if (v[3]) v[3].save(means);
                if (v[4]) v[4].save(variances);
                v[6].save(used_means);
                v[7].save(used_scales);
              });
}

SIM_OPERATOR(BatchNormBackward, const aclTensor* gradient, const aclTensor* input, const aclTensor* weight,
             const aclTensor* running_mean, const aclTensor* running_variance, const aclTensor* save_mean,
             const aclTensor* save_scale, bool training, double eps, const aclBoolArray* mask, aclTensor* of_input,
             aclTensor* of_weight, aclTensor* of_bias) {
  if (!mask || mask->values.size() != 3) return refuse(kNullParameter, "aclnnBatchNormBackward: outputMask");
  const aclTensor *means = training ? save_mean : running_mean, *scales = training ? save_scale : running_variance;
  return plan("aclnnBatchNormBackward", workspace, executor,
              {in(gradient), in(input), maybe(weight), in(means), in(scales), maybe(of_input), maybe(of_weight),
               maybe(of_bias)},
              512, [=](std::vector<view>& v) {
                const auto g = v[0].load(), x = v[1].load();
                const auto channels = static_cast<size_t>(v[0].sizes[1]);
                const auto w = load_or(v[2], channels, 1), mean = v[3].load();
                auto scale = v[4].load();
                if (!training)
                  for (double& s : scale) s = 1 / std::sqrt(s + eps);
                std::vector<double> to_input(x.size()), to_weight(channels), to_bias(channels);
                for (size_t c = 0; c < channels; ++c) {
                  const auto places = channel_places(v[0], c);
                  for (const size_t at : places) {
                    to_weight[c] += g[at] * (x[at] - mean[c]) * scale[c];
                    to_bias[c] += g[at];
                  }
                  const auto n = static_cast<double>(places.size());
                  for (const size_t at : places) {
                    const double normal = (x[at] - mean[c]) * scale[c];
                    const double shift = training ? (to_bias[c] + normal * to_weight[c]) / n : 0;
                    to_input[at] = (g[at] - shift) * w[c] * scale[c];
                  }
                }
                if (v[5]) v[5].save(to_input);
                if (v[6]) v[6].save(to_weight);
                if (v[7]) v[7].save(to_bias);
              });
}

// ---- pooling ----

namespace {

struct window {
  int64_t kernel[2], stride[2], padding[2], dilation[2] = {1, 1};
};

int read_window(const char* name, const aclIntArray* kernel, const aclIntArray* stride, const aclIntArray* padding,
                window* w) {
  for (const aclIntArray* list : {kernel, stride, padding})
    if (!list || list->values.size() != 2) return refuse(kInvalidParameter, "%s: lists have two elements", name);
  for (size_t i = 0; i < 2; ++i)
    w->kernel[i] = kernel->values[i], w->stride[i] = stride->values[i], w->padding[i] = padding->values[i];
  return kOk;
}

// f(place in the output, plane's start in the input, row, column) for every window, row and column being its first ones.
template <typename F>
void each_window(const view& input, const view& output, const window& w, F f) {
  const auto n = static_cast<size_t>(input.dim());
  const int64_t height = input.sizes[n - 2], width = input.sizes[n - 1];
  const int64_t rows = output.sizes[n - 2], columns = output.sizes[n - 1], planes = input.count() / height / width;
  for (int64_t plane = 0; plane < planes; ++plane)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        f(static_cast<size_t>((plane * rows + r) * columns + c), plane * height * width, r * w.stride[0] - w.padding[0],
          c * w.stride[1] - w.padding[1]);
}

} // namespace

SIM_OPERATOR(MaxPool2dWithIndices, const aclTensor* self, const aclIntArray* kernel, const aclIntArray* stride,
             const aclIntArray* padding, const aclIntArray* dilation, bool, aclTensor* out, aclTensor* places) {
  constexpr char name[] = "aclnnMaxPool2dWithIndices";
  window w;
  if (const int error = read_window(name, kernel, stride, padding, &w)) return error;
  if (!dilation || !places || places->dtype != kInt32) return refuse(kInvalidParameter, "%s: places are int32", name);
  w.dilation[0] = dilation->values[0], w.dilation[1] = dilation->values[1];
  return plan(name, workspace, executor, {in(self), in(out), in(places)}, 512, [=](std::vector<view>& v) {
    const auto x = v[0].load();
    std::vector<double> best(static_cast<size_t>(v[1].count())), where(best.size());
    const int64_t height = v[0].sizes[v[0].sizes.size() - 2], width = v[0].sizes.back();
    each_window(v[0], v[1], w, [&](size_t to, int64_t plane, int64_t row, int64_t column) {
      int64_t found = -1;
      for (int64_t i = 0; i < w.kernel[0]; ++i)
        for (int64_t j = 0; j < w.kernel[1]; ++j) {
          const int64_t y = row + i * w.dilation[0], z = column + j * w.dilation[1];
          if (y < 0 || y >= height || z < 0 || z >= width) continue;
          const double value = x[static_cast<size_t>(plane + y * width + z)];
          if (found < 0 || value > x[static_cast<size_t>(plane + found)] || std::isnan(value)) found = y * width + z;
        }
      best[to] = x[static_cast<size_t>(plane + found)];
      where[to] = static_cast<double>(found);
    });
    v[1].save(best);
    v[2].save(where);
  });
}

SIM_OPERATOR(MaxPool2dWithIndicesBackward, const aclTensor* gradient, const aclTensor* self, const aclTensor* places,
             const aclIntArray* kernel, const aclIntArray* stride, const aclIntArray* padding, const aclIntArray*, bool,
             aclTensor* out) {
  constexpr char name[] = "aclnnMaxPool2dWithIndicesBackward";
  window w;
  if (const int error = read_window(name, kernel, stride, padding, &w)) return error;
  if (!places || places->dtype != kInt32) return refuse(kInvalidParameter, "%s: places are int32", name);
  return plan(name, workspace, executor, {in(gradient), in(self), in(places), in(out)}, 512, [=](std::vector<view>& v) {
    const auto g = v[0].load(), where = v[2].load();
    std::vector<double> result(static_cast<size_t>(v[3].count()));
    each_window(v[1], v[0], w, [&](size_t from, int64_t plane, int64_t, int64_t) {
      result[static_cast<size_t>(plane + static_cast<int64_t>(where[from]))] += g[from];
    });
    v[3].save(result);
  });
}

namespace {

// What a mean is divided by, and the part of the window that lies in the image.
struct part {
  int64_t top, bottom, left, right;
  double divisor;
};

part part_of(const window& w, int64_t row, int64_t column, int64_t height, int64_t width, bool count_padding,
             int64_t divisor) {
  const int64_t bottom = std::min(row + w.kernel[0], height + w.padding[0]);
  const int64_t right = std::min(column + w.kernel[1], width + w.padding[1]);
  part p{std::max<int64_t>(row, 0), std::min(bottom, height), std::max<int64_t>(column, 0), std::min(right, width), 0};
  const int64_t all = (bottom - row) * (right - column), within = (p.bottom - p.top) * (p.right - p.left);
  p.divisor = static_cast<double>(divisor ? divisor : count_padding ? all : within);
  return p;
}

} // namespace

SIM_OPERATOR(AvgPool2d, const aclTensor* self, const aclIntArray* kernel, const aclIntArray* stride,
             const aclIntArray* padding, bool, bool count_padding, int64_t divisor, int8_t, aclTensor* out) {
  window w;
  if (const int error = read_window("aclnnAvgPool2d", kernel, stride, padding, &w)) return error;
  return plan("aclnnAvgPool2d", workspace, executor, {in(self), in(out)}, 512, [=](std::vector<view>& v) {
    const auto x = v[0].load();
    std::vector<double> result(static_cast<size_t>(v[1].count()));
    const int64_t height = v[0].sizes[v[0].sizes.size() - 2], width = v[0].sizes.back();
    each_window(v[0], v[1], w, [&](size_t to, int64_t plane, int64_t row, int64_t column) {
      const part p = part_of(w, row, column, height, width, count_padding, divisor);
      for (int64_t y = p.top; y < p.bottom; ++y)
        for (int64_t z = p.left; z < p.right; ++z) result[to] += x[static_cast<size_t>(plane + y * width + z)];
      result[to] /= p.divisor;
    });
    v[1].save(result);
  });
}

SIM_OPERATOR(AvgPool2dBackward, const aclTensor* gradient, const aclTensor* self, const aclIntArray* kernel,
             const aclIntArray* stride, const aclIntArray* padding, bool, bool count_padding, int64_t divisor, int8_t,
             aclTensor* out) {
  window w;
  if (const int error = read_window("aclnnAvgPool2dBackward", kernel, stride, padding, &w)) return error;
  return plan("aclnnAvgPool2dBackward", workspace, executor, {in(gradient), in(self), in(out)}, 512,
              [=](std::vector<view>& v) {
                const auto g = v[0].load();
                std::vector<double> result(static_cast<size_t>(v[2].count()));
                const int64_t height = v[1].sizes[v[1].sizes.size() - 2], width = v[1].sizes.back();
                each_window(v[1], v[0], w, [&](size_t from, int64_t plane, int64_t row, int64_t column) {
                  const part p = part_of(w, row, column, height, width, count_padding, divisor);
                  for (int64_t y = p.top; y < p.bottom; ++y)
                    for (int64_t z = p.left; z < p.right; ++z)
                      result[static_cast<size_t>(plane + y * width + z)] += g[from] / p.divisor;
                });
                v[2].save(result);
              });
}

// ---- losses ----

namespace {

enum reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

} // namespace

SIM_OPERATOR(NLLLoss, const aclTensor* self, const aclTensor* target, const aclTensor* weight, int64_t reduction,
             int64_t ignored, aclTensor* out, aclTensor* total_weight) {
  return plan("aclnnNLLLoss", workspace, executor, {in(self), in(target), in(weight), in(out), in(total_weight)}, 512,
              [=](std::vector<view>& v) {
                const auto x = v[0].load(), t = v[1].load(), w = v[2].load();
                const auto classes = static_cast<size_t>(v[0].sizes.back());
                std::vector<double> losses;
                double sum = 0, weights = 0;
                for (size_t i = 0; i < t.size(); ++i) {
                  const auto c = static_cast<int64_t>(t[i]);
                  const double factor = c == ignored ? 0 : w[static_cast<size_t>(c)];
                  losses.push_back(c == ignored ? 0 : -factor * x[i * classes + static_cast<size_t>(c)]);
                  sum += losses.back();
                  weights += factor;
                }
                if (reduction == kNone)
                  v[3].save(losses);
                else
                  v[3].save({reduction == kMean ? sum / weights : sum});
                v[4].save({reduction == kNone ? 0 : weights});
              });
}

SIM_OPERATOR(NLLLossBackward, const aclTensor* gradient, const aclTensor* self, const aclTensor* target,
             const aclTensor* weight, int64_t reduction, int64_t ignored, const aclTensor* total_weight,
             aclTensor* out) {
  return plan("aclnnNLLLossBackward", workspace, executor,
              {in(gradient), in(self), in(target), in(weight), in(total_weight), in(out)}, 512,
              [=](std::vector<view>& v) {
                const auto g = v[0].load(), t = v[2].load(), w = v[3].load();
                const double total = v[4].load()[0];
                const auto classes = static_cast<size_t>(v[1].sizes.back());
                std::vector<double> result(static_cast<size_t>(v[5].count()));
                for (size_t i = 0; i < t.size(); ++i) {
                  const auto c = static_cast<int64_t>(t[i]);
                  if (c == ignored) continue;
                  const double of_loss = reduction == kNone ? g[i] : reduction == kMean ? g[0] / total : g[0];
                  result[i * classes + static_cast<size_t>(c)] = -w[static_cast<size_t>(c)] * of_loss;
                }
                v[5].save(result);
              });
}

SIM_OPERATOR(MseLoss, const aclTensor* self, const aclTensor* target, int64_t reduction, aclTensor* out) {
  return plan("aclnnMseLoss", workspace, executor, {in(self), in(target), in(out)}, 512, [=](std::vector<view>& v) {
    auto x = v[0].load();
    const auto y = v[1].load();
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] = (x[i] - y[i]) * (x[i] - y[i]);
    if (reduction == kNone)
      v[2].save(x);
    else
      v[2].save({reduction == kMean ? sum / static_cast<double>(x.size()) : sum});
  });
}

SIM_OPERATOR(MseLossBackward, const aclTensor* gradient, const aclTensor* self, const aclTensor* target,
             int64_t reduction, aclTensor* out) {
  return plan("aclnnMseLossBackward", workspace, executor, {in(gradient), in(self), in(target), in(out)}, 512,
              [=](std::vector<view>& v) {
                const auto g = v[0].expanded(v[1].sizes).load(), y = v[2].load();
                auto x = v[1].load();
                for (size_t i = 0; i < x.size(); ++i)
                  x[i] = 2 * (x[i] - y[i]) * g[i] / (reduction == kMean ? static_cast<double>(x.size()) : 1);
                v[3].save(x);
              });
}

// ---- mixed precision ----

SIM_OPERATOR(ForeachNonFiniteCheckAndUnscale, const aclTensorList* gradients, aclTensor* found,
             const aclTensor* inverse_scale) {
  if (!gradients) return refuse(kNullParameter, "aclnnForeachNonFiniteCheckAndUnscale: the list is NULL");
  const size_t count = gradients->tensors.size();
  return plan("aclnnForeachNonFiniteCheckAndUnscale", workspace, executor, gradients, {in(found), in(inverse_scale)},
              512, [=](std::vector<view>& v) {
                const double scale = v[count + 1].load()[0];
                for (size_t i = 0; i < count; ++i) {
                  auto x = v[i].load();
                  for (double& value : x) {
                    if (!std::isfinite(value)) v[count].save({1});
                    value *= scale;
                  }
                  v[i].save(x);
                }
              });
}
