// Images at places that a grid names, and the gradients, made of gather and scatter_add: where the host cannot reach the
// memory.

#include <array>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/native/GridSamplerUtils.h>

#include "csrc/ops/compiled/composed/Compositions.h"

namespace torch_backend::compiled::grid {
namespace {

enum Interpolation : int64_t { kLinear, kNearest, kCubic };
enum Padding : int64_t { kBorder = 1, kReflection }; // all others are zeros

struct How {
  int64_t interpolation;
  int64_t padding;
  bool align_corners;
  bool is_volume;
};

/// A neighbour along one dimension, for each place of the grid: [N, places].
struct Tap {
  at::Tensor index;  // of an element
  at::Tensor inside; // whether there is one; undefined: always
  at::Tensor weight;
  at::Tensor slope; // of the weight, by the coordinate in elements; undefined: 0
};

/// The coordinate, in elements, inside the image; `*slope` is multiplied by what that does to changes of it.
at::Tensor reflected(at::Tensor x, int64_t size, bool align_corners, at::Tensor* slope) {
  const double low = align_corners ? 0 : -0.5;
  const double span = align_corners ? static_cast<double>(size - 1) : static_cast<double>(size);
  if (span == 0) {
    *slope = at::zeros_like(x);
    return at::zeros_like(x);
  }
  x = x.sub(low);
  const auto away = x.abs();
  const auto extra = away.fmod(span);
  const auto is_odd = away.div(span).floor_().remainder_(2).ne(0);
  *slope = at::where(x.lt(0).logical_xor_(is_odd), slope->neg(), *slope);
  return at::where(is_odd, extra.neg().add_(span), extra).add_(low);
}

/// From 0 to `last`; NaN, which stands for the image's border at -1, is 0.
at::Tensor limited(const at::Tensor& x, double last) {
  return x.masked_fill(x.gt(0).logical_not_(), 0).clamp_max_(last);
}

at::Tensor clipped(const at::Tensor& x, int64_t size, at::Tensor* slope) {
  const auto last = static_cast<double>(size - 1);
  *slope = slope->masked_fill(x.gt(0).logical_and_(x.lt(last)).logical_not_(), 0);
  return limited(x, last);
}

at::Tensor padded(const at::Tensor& x, int64_t size, const How& how, at::Tensor* slope) {
  if (how.padding == kBorder || how.padding == kReflection) {
    return clipped(how.padding == kBorder ? x : reflected(x, size, how.align_corners, slope), size, slope);
  }
  // As PyTorch's kernels for images and for volumes: of what is no place the former keep the NaN.
  return how.is_volume ? x.masked_fill(x.isfinite().logical_not_(), -100) : x;
}

Tap tap_at(const at::Tensor& place, int64_t size, const at::Tensor& weight, const at::Tensor& slope) {
  const auto last = static_cast<double>(size - 1);
  return {limited(place, last).to(at::kLong), place.ge(0).logical_and_(place.le(last)), weight, slope};
}

/// The cubic convolution's weight, and its slope, at a distance of 0 to 2.
std::tuple<at::Tensor, at::Tensor> cubic(const at::Tensor& distance, bool is_near) {
  constexpr double a = -0.75;
  const auto& t = distance;
  if (is_near) {
    return {((a + 2) * t - (a + 3)) * t * t + 1, (3 * (a + 2) * t - 2 * (a + 3)) * t};
  }
  return {((a * t - 5 * a) * t + 8 * a) * t - 4 * a, (3 * a * t - 10 * a) * t + 8 * a};
}

/// Along one dimension; `grid` [N, places] is between -1 and 1.
std::vector<Tap> taps_of(const at::Tensor& grid, int64_t size, const How& how) {
  const double scale = static_cast<double>(how.align_corners ? size - 1 : size) / 2;
  auto x = how.align_corners ? (grid + 1) * scale : ((grid + 1) * static_cast<double>(size) - 1) / 2;
  auto slope = at::full_like(x, scale);
  std::vector<Tap> taps;
  if (how.interpolation == kCubic) {
    const auto first = x.floor();
    const auto t = x - first;
    for (int i = -1; i <= 2; ++i) {
      const bool is_before = i <= 0;
      const auto [weight, change] = cubic(is_before ? t - i : -t + i, i == 0 || i == 1);
      auto unused = at::ones_like(x);
      taps.push_back(
          tap_at(padded(first + i, size, how, &unused), size, weight, (is_before ? change : change.neg()).mul_(slope)));
    }
    return taps;
  }
  x = padded(x, size, how, &slope);
  if (how.interpolation == kNearest) {
    return {tap_at(x.round(), size, at::ones_like(x), {})};
  }
  const auto first = x.floor();
  const auto t = x - first;
  return {tap_at(first, size, 1 - t, slope.neg()), tap_at(first + 1, size, t, slope)};
}

/// One choice of a tap for each dimension, over all of them.
struct Neighbours {
  Neighbours(const at::Tensor& input, const at::Tensor& grid, const How& how)
      : sizes(input.sizes().slice(2).vec()), num_dims(sizes.size()), chosen(num_dims) {
    const auto places = grid.flatten(1, -2);
    for (std::size_t d = 0; d < num_dims; ++d) {
      taps.push_back(taps_of(places.select(-1, static_cast<int64_t>(num_dims - 1 - d)), sizes[d], how));
    }
  }
  bool next() {
    for (auto d = num_dims; d-- > 0;) {
      if (++chosen[d] < taps[d].size()) {
        return true;
      }
      chosen[d] = 0;
    }
    return false;
  }
  const Tap& tap(std::size_t d) const {
    return taps[d][chosen[d]];
  }
  at::Tensor index() const {
    auto result = tap(0).index;
    for (std::size_t d = 1; d < num_dims; ++d) {
      result = result * sizes[d] + tap(d).index;
    }
    return result;
  }
  at::Tensor inside() const {
    auto result = tap(0).inside;
    for (std::size_t d = 1; d < num_dims; ++d) {
      result = result.logical_and(tap(d).inside);
    }
    return result;
  }
  /// With the slope along one dimension in place of the weight, if `along` is one.
  at::Tensor weight(std::size_t along) const {
    at::Tensor result;
    for (std::size_t d = 0; d < num_dims; ++d) {
      const auto& factor = d == along ? tap(d).slope : tap(d).weight;
      result = result.defined() ? result * factor : factor;
    }
    return result;
  }

  std::vector<int64_t> sizes;
  std::size_t num_dims;
  std::vector<std::vector<Tap>> taps;
  std::vector<std::size_t> chosen;
};

constexpr auto kNoDimension = static_cast<std::size_t>(-1);

at::ScalarType wide_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_arguments(const at::Tensor& input, const at::Tensor& grid, int64_t interpolation) {
  at::native::check_grid_sampler_common(input, grid);
  if (input.dim() == 5) {
    at::native::check_grid_sampler_3d(input, grid, interpolation);
  } else {
    at::native::check_grid_sampler_2d(input, grid);
  }
  check_dtype(grid, input.scalar_type());
}

at::Tensor grid_sampler(const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding,
                        bool align_corners) {
  check_arguments(input, grid, interpolation);
  const auto wide = wide_type(input);
  const auto pixels = input.to(wide).flatten(2);
  Neighbours all(input, grid.to(wide), {interpolation, padding, align_corners, input.dim() == 5});
  auto sizes = grid.sizes().vec();
  sizes.pop_back();
  sizes.insert(sizes.begin() + 1, input.size(1));
  auto result = at::zeros(sizes, pixels.options());
  auto places = result.flatten(2);
  do {
    const auto index = all.index().unsqueeze(1).expand(places.sizes());
    const auto values = pixels.gather(2, index).masked_fill_(all.inside().logical_not_().unsqueeze(1), 0);
    places.add_(values.mul_(all.weight(kNoDimension).unsqueeze(1)));
  } while (all.next());
  return result.to(input.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> grid_sampler_backward(const at::Tensor& grad, const at::Tensor& input,
                                                         const at::Tensor& grid, int64_t interpolation, int64_t padding,
                                                         bool align_corners, std::array<bool, 2> output_mask) {
  check_arguments(input, grid, interpolation);
  const auto wide = wide_type(input);
  const auto pixels = input.to(wide).flatten(2);
  const auto of_places = grad.to(wide).flatten(2);
  Neighbours all(input, grid.to(wide), {interpolation, padding, align_corners, input.dim() == 5});
  auto grad_input = output_mask[0] ? at::zeros(input.sizes(), pixels.options()) : at::Tensor();
  auto grad_grid = at::zeros(grid.sizes(), pixels.options());
  do {
    const auto index = all.index().unsqueeze(1).expand(of_places.sizes());
    const auto outside = all.inside().logical_not();
    if (output_mask[0]) {
      const auto weight = all.weight(kNoDimension).masked_fill(outside, 0);
      grad_input.flatten(2).scatter_add_(2, index, of_places * weight.unsqueeze(1));
    }
    if (output_mask[1] && interpolation != kNearest) {
      const auto value = (pixels.gather(2, index) * of_places).sum(1).masked_fill_(outside, 0);
      for (std::size_t d = 0; d < all.num_dims; ++d) {
        grad_grid.flatten(1, -2).select(-1, static_cast<int64_t>(all.num_dims - 1 - d)).add_(value * all.weight(d));
      }
    }
  } while (all.next());
  return {output_mask[0] ? grad_input.to(input.scalar_type()) : grad_input, grad_grid.to(grid.scalar_type())};
}

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "grid_sampler_2d", grid_sampler_2d, grid_sampler);
  TB_COMPOSITION(m, "grid_sampler_2d_backward", grid_sampler_2d_backward, grid_sampler_backward);
  TB_COMPOSITION(m, "grid_sampler_3d", grid_sampler_3d, grid_sampler);
  TB_COMPOSITION(m, "grid_sampler_3d_backward", grid_sampler_3d_backward, grid_sampler_backward);
}

} // namespace torch_backend::compiled::grid
