// Histograms: PyTorch's kernels for CUDA take whole numbers, which programs count on, and those for the CPU do not.

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/composed/Ranges.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

/// `place` of each element of `self` that is `inside`, of `bins`; the last one has the upper end too.
at::Tensor counts_at(const at::Tensor& self, at::Tensor place, const at::Tensor& inside, int64_t bins) {
  place = place.masked_fill_(inside.logical_not(), 0).clamp_(0, bins - 1).to(at::kLong);
  return at::zeros({bins}, self.options()).index_add_(0, place, inside.to(self.scalar_type()));
}

/// As on CUDA: ends are cut, and places are quotients of whole numbers.
at::Tensor count_integers(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  using Limits = std::numeric_limits<int64_t>;
  int64_t low = min.to<int64_t>(), high = max.to<int64_t>();
  if (low == high && self.numel() > 0) {
    const auto [least, most] = self.aminmax();
    low = least.item().toLong();
    high = most.item().toLong();
  }
  if (low == high) {
    low -= low > Limits::lowest();
    high += high < Limits::max();
  }
  TORCH_CHECK(low < high, "torch.histc: max must be larger than min");
  const auto x = self.flatten().to(at::kLong);
  const auto inside = x.ge(low).logical_and_(x.le(high));
  int64_t span = 0, most = 0;
  const bool fits = !__builtin_sub_overflow(high, low, &span) && !__builtin_mul_overflow(span, bins, &most);
  const double scale = static_cast<double>(bins) / (static_cast<double>(high) - static_cast<double>(low));
  return counts_at(self, fits ? x.sub(low).mul_(bins).div_(span, "trunc") : x.to(at::kDouble).sub_(low).mul_(scale),
                   inside, bins);
}

at::Tensor count_floats(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), "\"histogram_cpu\" not implemented for '",
                              self.scalar_type(), "'");
  compiled::ranges::check_fits(min, self.scalar_type());
  compiled::ranges::check_fits(max, self.scalar_type());
  double low = min.toDouble(), high = max.toDouble();
  if (low == high && self.numel() > 0) {
    const auto [least, most] = self.aminmax();
    low = least.item().toDouble();
    high = most.item().toDouble();
  }
  const bool is_one_value = low == high;
  if (is_one_value) {
    low = std::min(low - 1, std::nextafter(low, -HUGE_VAL));
    high = std::max(high + 1, std::nextafter(high, HUGE_VAL));
  }
  const double largest = std::max(high - low, 1.0) * static_cast<double>(bins); // of what is computed
  TORCH_CHECK(std::isfinite(largest), "torch.histc: range of [", low, ", ", high, "] is not finite");
  TORCH_CHECK(low < high, "torch.histc: max must be larger than min");
  const double most = self.scalar_type() == at::kHalf ? 65504 : std::numeric_limits<float>::max();
  const auto x = is_one_value || largest > most ? self.flatten().to(at::kDouble) : self.flatten();
  return counts_at(self, x.sub(low).mul_(bins).div_(high - low), x.ge(low).logical_and_(x.le(high)), bins);
}

at::Tensor count(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(bins > 0, "torch.histc(): bins must be > 0");
  const bool is_whole = at::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  return (is_whole ? count_integers : count_floats)(self, bins, min, max);
}

bool has_host_kernel(const at::Tensor& self) {
  const bool is_whole = at::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  return !is_whole && (device_api().host_access() || !compiled::has_modules());
}

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  return has_host_kernel(self) ? AtenKernel<at::_ops::histc>::call(self, bins, min, max) : count(self, bins, min, max);
}

at::Tensor& histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max,
                      at::Tensor& out) {
  return has_host_kernel(self) ? AtenKernel<at::_ops::histc_out>::call(self, bins, min, max, out)
                               : compiled::Into<count>::call(self, bins, min, max, out);
}

} // namespace

void register_histogram(Registrar& m) {
  const Source source = compiled::has_modules() ? Source::kGenerated : Source::kAten;
  m.impl("histc", TORCH_FN(histc), source);
  m.impl("histc.out", TORCH_FN(histc_out), source);
}

} // namespace torch_backend
