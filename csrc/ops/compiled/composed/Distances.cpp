// Distances between vectors and products of three, made of other operators: where the host cannot reach the memory.
#include "csrc/ops/compiled/composed/Distances.h"

#include <cmath>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>

#include "csrc/ops/compiled/composed/Compositions.h"

namespace torch_backend::compiled::distances {
namespace {

/// For each difference what its norm `distance` changes by, times `grad`.
at::Tensor norm_backward(const at::Tensor& grad, const at::Tensor& difference, double p, const at::Tensor& distance) {
  if (p == 0) {
    return at::zeros_like(difference);
  }
  const auto by = grad * difference.sign().masked_fill_(difference.isnan(), NAN);
  if (p == 1) {
    return by;
  }
  const auto size = difference.abs();
  if (std::isinf(p)) {
    return (by * size.eq(distance)).masked_fill_(distance.isnan(), NAN);
  }
  const auto slope = p == 2 ? size / distance : size.pow(p - 1) / distance.pow(p - 1);
  return (by * slope).masked_fill_(distance.eq(0).logical_or(difference.eq(0)), 0);
}

/// Of differences along `dim`. Of those that are not 0 as many as there are, unless one is NaN.
at::Tensor norm(const at::Tensor& difference, double p, int64_t dim) {
  return p == 0 ? difference.sgn().abs_().masked_fill_(difference.isnan(), NAN).sum(dim)
                : at::linalg_vector_norm(difference, p, at::IntArrayRef{dim});
}

at::Tensor differences(const at::Tensor& left, const at::Tensor& right) {
  return left.unsqueeze(-2) - right.unsqueeze(-3);
}

at::Tensor cdist(const at::Tensor& left, const at::Tensor& right, double p, std::optional<int64_t> compute_mode) {
  TORCH_CHECK(left.dim() >= 2 && right.dim() >= 2 && left.size(-1) == right.size(-1),
              "cdist: the vectors are of sizes ", left.sizes(), " and ", right.sizes(),
              "; both must have at least two dimensions, the last ones of one size");
  TORCH_CHECK(at::isFloatingType(left.scalar_type()),
              "cdist only supports floating-point dtypes, X1 got: ", left.scalar_type());
  TORCH_CHECK(at::isFloatingType(right.scalar_type()),
              "cdist only supports floating-point dtypes, X2 got: ", right.scalar_type());
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  const auto mode = compute_mode.value_or(0);
  TORCH_CHECK(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
  const bool by_product = p == 2 && (mode == 1 || (mode == 0 && (left.size(-2) > 25 || right.size(-2) > 25)));
  if (left.numel() == 0 || right.numel() == 0) { // whatever their dtypes and the norm
    auto sizes = at::infer_size(left.sizes().slice(0, static_cast<std::size_t>(left.dim() - 2)),
                                right.sizes().slice(0, static_cast<std::size_t>(right.dim() - 2)));
    sizes.insert(sizes.end(), {left.size(-2), right.size(-2)});
    return at::zeros(sizes, left.options());
  }
  check_dtype(right, left.scalar_type());
  if (by_product) {
    return at::_euclidean_dist(left, right);
  }
  return norm(differences(left, right), p, -1);
}

at::Tensor cdist_backward(const at::Tensor& grad, const at::Tensor& left, const at::Tensor& right, double p,
                          const at::Tensor& distance) {
  return norm_backward(grad.unsqueeze(-1), differences(left, right), p, distance.unsqueeze(-1)).sum(-2);
}

/// The rows of each pair.
std::tuple<at::Tensor, at::Tensor> pairs_of(const at::Tensor& rows) {
  const auto pairs = at::triu_indices(rows.size(0), rows.size(0), 1, rows.options().dtype(at::kLong));
  return {pairs[0], pairs[1]};
}

at::Tensor pdist(const at::Tensor& self, double p) {
  const auto [first, second] = pairs_of(self);
  return norm(self.index_select(0, first) - self.index_select(0, second), p, 1);
}

at::Tensor pdist_backward(const at::Tensor& grad, const at::Tensor& self, double p, const at::Tensor& distance) {
  const auto [first, second] = pairs_of(self);
  const auto difference = self.index_select(0, first) - self.index_select(0, second);
  const auto by = norm_backward(grad.unsqueeze(1), difference, p, distance.unsqueeze(1));
  return at::zeros_like(self, at::MemoryFormat::Contiguous).index_add_(0, first, by).index_add_(0, second, by.neg());
}

at::Tensor cross(const at::Tensor& self, const at::Tensor& other, int64_t dim) {
  TORCH_CHECK(self.dim() == other.dim(), "linalg.cross: inputs must have the same number of dimensions.");
  TORCH_CHECK(self.size(dim) == 3 && other.size(dim) == 3, "linalg.cross: inputs dimension ", dim,
              " must have length 3. Got ", self.size(dim), " and ", other.size(dim));
  check_dtype(other, self.scalar_type());
  const auto [a, b] = at::expand_outplace(self, other);
  return a->roll(-1, dim) * b->roll(-2, dim) - a->roll(-2, dim) * b->roll(-1, dim);
}

at::Tensor& cross_out(const at::Tensor& self, const at::Tensor& other, int64_t dim, at::Tensor& out) {
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, other);
  return Into<cross>::call(self, other, dim, out);
}

at::Tensor scaled_slices(const at::Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& maxnorm) {
  TORCH_CHECK(p.toDouble() > 0, "renorm: non-positive-norm not supported");
  TORCH_CHECK(maxnorm.toDouble() >= 0, "renorm: expected maxnorm to be >= 0 but got ", maxnorm.toDouble());
  TORCH_CHECK(self.dim() > 1, "renorm: input needs at least 2 dimensions, got ", self.dim(), " dimensions");
  return limited_norm(self, p, at::maybe_wrap_dim(dim, self.dim()), maxnorm);
}

at::Tensor& scale_slices_(at::Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& maxnorm) {
  return self.copy_(scaled_slices(self, p, dim, maxnorm));
}

} // namespace

at::Tensor limited_norm(const at::Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& maxnorm) {
  std::vector<int64_t> others;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim) {
      others.push_back(d);
    }
  }
  const auto norm = at::linalg_vector_norm(self, p, others, /*keepdim=*/true, at::toOpMathType(self.scalar_type()));
  const auto factor = (norm + 1e-7).reciprocal_().mul_(maxnorm).masked_fill_(norm.gt(maxnorm).logical_not_(), 1);
  return at::mul(self, factor.to(self.scalar_type())).contiguous();
}

void add(Registrar& m) {
  TB_COMPOSITION(m, "_cdist_forward", _cdist_forward, cdist);
  TB_COMPOSITION(m, "_cdist_backward", _cdist_backward, cdist_backward);
  TB_COMPOSITION(m, "_pdist_forward", _pdist_forward, pdist);
  TB_COMPOSITION(m, "_pdist_backward", _pdist_backward, pdist_backward);
  TB_COMPOSITION(m, "linalg_cross", linalg_cross, cross);
  TB_COMPOSITION(m, "linalg_cross.out", linalg_cross_out, cross_out);
  TB_COMPOSITION(m, "renorm", renorm, scaled_slices);
  TB_COMPOSITION(m, "renorm_", renorm_, scale_slices_);
  TB_COMPOSITION(m, "renorm.out", renorm_out, Into<scaled_slices>::call);
}

} // namespace torch_backend::compiled::distances
