// Matrix products and convolutions, which the matrix unit does: float32, float16 and bfloat16.
#include <cmath>

#include "operator.h"

using namespace sim;

namespace {

bool is_for_cube(const aclTensor* t) {
  return !t || t->dtype == kFloat || t->dtype == kHalf || t->dtype == kBfloat16;
}

int check_cube(const char* name, std::initializer_list<const aclTensor*> tensors, int8_t math) {
  int dtype = -1;
  for (const aclTensor* t : tensors) {
    if (!t) return refuse(kNullParameter, "%s: a tensor is NULL", name);
    if (!is_for_cube(t) || (dtype >= 0 && t->dtype != dtype))
      return refuse(kInvalidParameter, "%s: the matrix unit does not take these dtypes", name);
    dtype = t->dtype;
  }
  return math >= 0 && math <= 3 ? kOk : refuse(kInvalidParameter, "%s: cubeMathType %d", name, math);
}

// What the matrix unit multiplies: HFLOAT32 has 11 bits after the first one. `math` is 3 where that is asked for.
std::vector<double> factors(const view& v, int8_t math) {
  auto values = v.load();
  for (double& x : values)
    if (int exponent = 0; math == 3 && x != 0 && std::isfinite(x)) {
      const double significand = std::frexp(x, &exponent);
      x = std::ldexp(std::nearbyint(std::ldexp(significand, 12)), exponent - 12);
    }
  return values;
}

// out = beta * added + alpha * a @ b, of as many matrices as `out` has.
void multiply(const view* added, const view& a, const view& b, double beta, double alpha, const view& out,
              int8_t math) {
  const auto x = factors(a, math), y = factors(b, math);
  const auto n = static_cast<size_t>(out.dim());
  const auto rows = static_cast<size_t>(out.sizes[n - 2]), columns = static_cast<size_t>(out.sizes[n - 1]);
  const auto inner = static_cast<size_t>(a.sizes.back());
  const size_t batch = rows && columns ? static_cast<size_t>(out.count()) / rows / columns : 0;
  const auto before = added && beta != 0 ? added->expanded(out.sizes).load() : std::vector<double>();
  std::vector<double> result(batch * rows * columns);
  for (size_t m = 0; m < batch; ++m)
    for (size_t r = 0; r < rows; ++r) {
      double* row = &result[(m * rows + r) * columns];
      for (size_t i = 0; i < inner; ++i) {
        const double factor = x[(m * rows + r) * inner + i];
        const double* other = &y[(m * inner + i) * columns];
        for (size_t c = 0; c < columns; ++c) row[c] += factor * other[c];
      }
      for (size_t c = 0; c < columns; ++c)
        row[c] = alpha * row[c] + (before.empty() ? 0 : beta * before[(m * rows + r) * columns + c]);
    }
  out.save(result);
}

int product(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* a, const aclTensor* b,
            aclTensor* out, int8_t math, size_t ndim) {
  if (const int error = check_cube(name, {a, b, out}, math)) return error;
  if (a->sizes.size() != ndim || b->sizes.size() != ndim || a->sizes[ndim - 1] != b->sizes[ndim - 2] ||
      a->sizes[ndim - 2] != out->sizes[ndim - 2] || b->sizes[ndim - 1] != out->sizes[ndim - 1])
    return refuse(kInvalidParameter, "%s: sizes", name);
  return plan(name, workspace, executor, {in(a), in(b), in(out)}, 1024,
              [=](std::vector<view>& v) { multiply(nullptr, v[0], v[1], 0, 1, v[2], math); });
}

int sum_of_product(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* self,
                   const aclTensor* a, const aclTensor* b, const aclScalar* beta, const aclScalar* alpha,
                   aclTensor* out, int8_t math) {
  if (const int error = check_cube(name, {self, a, b, out}, math)) return error;
  if (!beta || !alpha) return refuse(kNullParameter, "%s: a scalar is NULL", name);
  const double factor = beta->f, scale = alpha->f;
  return plan(name, workspace, executor, {in(self), in(a), in(b), in(out)}, 1024,
              [=](std::vector<view>& v) { multiply(&v[0], v[1], v[2], factor, scale, v[3], math); });
}

} // namespace

SIM_OPERATOR(Mm, const aclTensor* self, const aclTensor* other, aclTensor* out, int8_t math) {
  return product("aclnnMm", workspace, executor, self, other, out, math, 2);
}

SIM_OPERATOR(BatchMatMul, const aclTensor* self, const aclTensor* other, aclTensor* out, int8_t math) {
  return product("aclnnBatchMatMul", workspace, executor, self, other, out, math, 3);
}

SIM_OPERATOR(Addmm, const aclTensor* self, const aclTensor* a, const aclTensor* b, const aclScalar* beta,
             const aclScalar* alpha, aclTensor* out, int8_t math) {
  return sum_of_product("aclnnAddmm", workspace, executor, self, a, b, beta, alpha, out, math);
}

SIM_OPERATOR(Baddbmm, const aclTensor* self, const aclTensor* a, const aclTensor* b, const aclScalar* beta,
             const aclScalar* alpha, aclTensor* out, int8_t math) {
  return sum_of_product("aclnnBaddbmm", workspace, executor, self, a, b, beta, alpha, out, math);
}

// ---- convolutions of one and two dimensions ----

namespace {

struct geometry {
  int64_t n, groups, in, out; // channels of a group
  int64_t height, width, out_height, out_width, kernel_height, kernel_width;
  int64_t stride[2], padding[2], dilation[2];
};

// A line is an image of height 1.
int64_t at(const std::vector<int64_t>& values, int which, int64_t missing) {
  if (values.size() == 1) return which == 0 ? missing : values[0];
  return values[static_cast<size_t>(which)];
}

geometry make_geometry(const view& input, const view& weight, const view& output, const aclIntArray& stride,
                       const aclIntArray& padding, const aclIntArray& dilation, int64_t groups) {
  const auto size = [](const view& v, int64_t d) { return v.sizes[static_cast<size_t>(d)]; };
  const bool line = input.dim() == 3;
  geometry g{};
  g.n = size(input, 0), g.groups = groups, g.in = size(input, 1) / groups, g.out = size(output, 1) / groups;
  g.height = line ? 1 : size(input, 2), g.width = size(input, line ? 2 : 3);
  g.out_height = line ? 1 : size(output, 2), g.out_width = size(output, line ? 2 : 3);
  g.kernel_height = line ? 1 : size(weight, 2), g.kernel_width = size(weight, line ? 2 : 3);
  for (int i = 0; i < 2; ++i) {
    g.stride[i] = at(stride.values, i, 1);
    g.padding[i] = at(padding.values, i, 0);
    g.dilation[i] = at(dilation.values, i, 1);
  }
  return g;
}

// Calls f(place in input, in weight, in output) for all products of the convolution from input to output.
template <typename F>
void each_product(const geometry& g, F f) {
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t group = 0; group < g.groups; ++group)
      for (int64_t o = group * g.out; o < (group + 1) * g.out; ++o)
        for (int64_t i = 0; i < g.in; ++i)
          for (int64_t y = 0; y < g.out_height; ++y)
            for (int64_t x = 0; x < g.out_width; ++x)
              for (int64_t ky = 0; ky < g.kernel_height; ++ky)
                for (int64_t kx = 0; kx < g.kernel_width; ++kx) {
                  const int64_t from_y = y * g.stride[0] - g.padding[0] + ky * g.dilation[0];
                  const int64_t from_x = x * g.stride[1] - g.padding[1] + kx * g.dilation[1];
                  if (from_y < 0 || from_y >= g.height || from_x < 0 || from_x >= g.width) continue;
                  const int64_t channel = group * g.in + i;
                  f(static_cast<size_t>(((n * g.groups * g.in + channel) * g.height + from_y) * g.width + from_x),
                    static_cast<size_t>(((o * g.in + i) * g.kernel_height + ky) * g.kernel_width + kx),
                    static_cast<size_t>(((n * g.groups * g.out + o) * g.out_height + y) * g.out_width + x));
                }
}

int check_convolution(const char* name, const aclTensor* input, bool transposed, const aclIntArray* stride,
                      const aclIntArray* padding, const aclIntArray* dilation) {
  if (!stride || !padding || !dilation) return refuse(kNullParameter, "%s: a list is NULL", name);
  const size_t ndim = input->sizes.size();
  if ((ndim != 3 && ndim != 4) || stride->values.size() != ndim - 2 || padding->values.size() != ndim - 2 ||
      dilation->values.size() != ndim - 2)
    return refuse(kInvalidParameter, "%s: lists of another length than the image has dimensions", name);
  return transposed ? refuse(kInvalidParameter, "%s: not simulated: transposed", name) : kOk;
}

void save_if_wanted(const view& v, const std::vector<double>& values) {
  if (v) v.save(values);
}

} // namespace

SIM_OPERATOR(Convolution, const aclTensor* input, const aclTensor* weight, const aclTensor* bias,
             const aclIntArray* stride, const aclIntArray* padding, const aclIntArray* dilation, bool transposed,
             const aclIntArray*, int64_t groups, aclTensor* out, int8_t math) {
  constexpr char name[] = "aclnnConvolution";
  if (const int error = check_cube(name, {input, weight, out}, math)) return error;
  if (const int error = check_convolution(name, input, transposed, stride, padding, dilation)) return error;
  const aclIntArray s = *stride, p = *padding, d = *dilation;
  return plan(name, workspace, executor, {in(input), in(weight), maybe(bias), in(out)}, 2048,
              [=](std::vector<view>& v) {
                const geometry g = make_geometry(v[0], v[1], v[3], s, p, d, groups);
                const auto x = factors(v[0], math), w = factors(v[1], math);
                const auto b = v[2] ? v[2].load() : std::vector<double>();
                std::vector<double> result(static_cast<size_t>(v[3].count()));
                const auto plane = static_cast<size_t>(g.out_height * g.out_width),
                           channels = static_cast<size_t>(g.groups * g.out);
                for (size_t i = 0; i < result.size() && !b.empty(); ++i) result[i] = b[i / plane % channels];
                each_product(g, [&](size_t from, size_t by, size_t to) { result[to] += x[from] * w[by]; });
                v[3].save(result);
              });
}

SIM_OPERATOR(ConvolutionBackward, const aclTensor* gradient, const aclTensor* input, const aclTensor* weight,
             const aclIntArray* bias_sizes, const aclIntArray* stride, const aclIntArray* padding,
             const aclIntArray* dilation, bool transposed, const aclIntArray*, int64_t groups, const aclBoolArray* mask,
             int8_t math, aclTensor* of_input, aclTensor* of_weight, aclTensor* of_bias) {
  constexpr char name[] = "aclnnConvolutionBackward";
  if (const int error = check_cube(name, {gradient, input, weight}, math)) return error;
  if (const int error = check_convolution(name, input, transposed, stride, padding, dilation)) return error;
  if (!mask || mask->values.size() != 3 || !bias_sizes) return refuse(kNullParameter, "%s: mask or biasSizes", name);
  if (mask->values[2] && bias_sizes->values != std::vector<int64_t>{weight->sizes[0]})
    return refuse(kInvalidParameter, "%s: biasSizes", name);
  const aclTensor* wanted[] = {of_input, of_weight, of_bias};
  for (size_t i = 0; i < 3; ++i)
    if (mask->values[i] != (wanted[i] != nullptr))
      return refuse(kInvalidParameter, "%s: the mask and the tensors do not tell the same", name);
  const aclIntArray s = *stride, p = *padding, d = *dilation;
  return plan(
      name, workspace, executor,
      {in(gradient), in(input), in(weight), maybe(of_input), maybe(of_weight), maybe(of_bias)}, 2048,
      [=](std::vector<view>& v) {
        const geometry g = make_geometry(v[1], v[2], v[0], s, p, d, groups);
        const auto out = v[0].load(), gradients = factors(v[0], math), x = factors(v[1], math), w = factors(v[2], math);
        std::vector<double> to_input(x.size()), to_weight(w.size()), to_bias(static_cast<size_t>(g.groups * g.out));
        each_product(g, [&](size_t from, size_t by, size_t to) {
          to_input[from] += gradients[to] * w[by];
          to_weight[by] += gradients[to] * x[from];
        });
        const auto plane = static_cast<size_t>(g.out_height * g.out_width);
        for (size_t i = 0; i < out.size(); ++i) to_bias[i / plane % to_bias.size()] += out[i];
        save_if_wanted(v[3], to_input);
        save_if_wanted(v[4], to_weight);
        save_if_wanted(v[5], to_bias);
      });
}
