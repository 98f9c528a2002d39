// Bags of embeddings, which are sums, means or maxima of a table's rows, made of other operators: where the host cannot
// reach the memory.

#include <array>
#include <limits>
#include <tuple>

#include <ATen/ATen.h>

#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/composed/Distances.h"
#include "csrc/ops/tensor/Widened.h"

namespace torch_backend::compiled::bags {
namespace {

// PyTorch's numbers.
enum Mode : int64_t { kSum, kMean, kMax };

constexpr int64_t kNoPadding = -1, kNoIndex = -1;

void check_mode(int64_t mode) {
  TORCH_CHECK(mode >= kSum && mode <= kMax, "embedding_bag: there is no mode ", mode);
}

void check_inputs(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
                  const at::Tensor& factors, bool include_last_offset) {
  TORCH_CHECK(weight.dim() == 2 && at::isFloatingType(weight.scalar_type()), "embedding_bag: weight is of sizes ",
              weight.sizes(), " and ", weight.scalar_type(),
              "; it must be of two dimensions and of a floating point dtype");
  for (const auto& each : {indices, offsets}) {
    TORCH_CHECK(each.dim() == 1 && (each.scalar_type() == at::kLong || each.scalar_type() == at::kInt),
                "embedding_bag: indices are of sizes ", indices.sizes(), " and ", indices.scalar_type(),
                ", offsets of ", offsets.sizes(), " and ", offsets.scalar_type(),
                "; both must be of one dimension, of int32 or int64");
  }
  check_mode(mode);
  TORCH_CHECK(!include_last_offset || offsets.size(0) > 0,
              "embedding_bag: offsets have at least one element with include_last_offset");
  TORCH_CHECK(!factors.defined() ||
                  (mode == kSum && factors.sizes() == indices.sizes() && factors.scalar_type() == weight.scalar_type()),
              "embedding_bag: per_sample_weights must have the indices' sizes and the weight's dtype, with mode='sum'");
}

/// One row for each index, in the dtype that is computed in. What is padding has zeros.
at::Tensor rows_for(const at::Tensor& indices, const at::Tensor& rows, const at::Tensor& factors, int64_t padding_idx) {
  auto result = rows;
  if (factors.defined()) {
    result = result * factors.to(rows.scalar_type()).unsqueeze(1);
  }
  return padding_idx == kNoPadding ? result : result.masked_fill(indices.eq(padding_idx).unsqueeze(1), 0);
}

/// Of each bag and column the largest element, and the index whose it is: the first one's; of an empty bag 0 and kNoIndex.
std::tuple<at::Tensor, at::Tensor> largest(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& bags,
                                           int64_t num_bags, int64_t padding_idx) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const auto places = bags.to(at::kLong).unsqueeze(1).expand({-1, weight.size(1)});
  const std::array<int64_t, 2> sizes{num_bags, weight.size(1)};
  auto rows = weight.index_select(0, indices);
  auto number = at::arange(indices.size(0), places.options()).unsqueeze(1);
  if (padding_idx != kNoPadding) {
    const auto is_padding = indices.eq(padding_idx).unsqueeze(1);
    rows = rows.masked_fill(is_padding, kLowest);
    number = number.masked_fill(is_padding, indices.size(0));
  }
  const auto values = at::full(sizes, kLowest, weight.options()).scatter_reduce(0, places, rows, "amax");
  const auto is_largest = rows.eq(values.index_select(0, bags));
  const auto first = at::full(sizes, indices.size(0), places.options())
                         .scatter_reduce(0, places, at::where(is_largest, number, indices.size(0)), "amin");
  const auto has_none = first.eq(indices.size(0));
  const auto found = indices.take(first.clamp_max(indices.size(0) - 1)).masked_fill_(has_none, kNoIndex);
  return {values.masked_fill(has_none.logical_and(values.eq(kLowest)), 0), found};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> embedding_bag(
    const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, bool /*scale_grad_by_freq*/,
    int64_t mode, bool /*sparse*/, const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
    int64_t padding_idx) {
  const auto factors = per_sample_weights.value_or(at::Tensor());
  check_inputs(weight, indices, offsets, mode, factors, include_last_offset);
  const int64_t num_bags = offsets.size(0) - include_last_offset;
  // Where each begins is known: an index is of the last one that begins at it or before.
  const auto bags = at::bucketize(at::arange(indices.size(0), offsets.options()), offsets.narrow(0, 0, num_bags),
                                  /*out_int32=*/indices.scalar_type() == at::kInt, /*right=*/true)
                        .sub_(1);
  const auto counted =
      padding_idx == kNoPadding ? at::ones_like(indices) : indices.ne(padding_idx).to(bags.scalar_type());
  auto bag_size = at::zeros(offsets.sizes(), indices.options());
  bag_size.narrow(0, 0, num_bags).index_add_(0, bags, counted);
  if (mode == kMax && indices.size(0) > 0) {
    auto [values, found] = largest(weight, indices, bags, num_bags, padding_idx);
    return {values, bags, bag_size, found};
  }
  const auto rows = rows_for(indices, widened(weight.index_select(0, indices)), factors, padding_idx);
  auto sums = at::zeros({num_bags, weight.size(1)}, rows.options()).index_add_(0, bags, rows);
  if (mode == kMean) {
    sums.div_(bag_size.narrow(0, 0, num_bags).clamp_min(1).unsqueeze(1));
  }
  const auto max_indices =
      mode == kMax ? at::full(sums.sizes(), kNoIndex, indices.options()) : at::empty({0}, indices.options());
  return {sums.to(weight.scalar_type()), bags, bag_size, max_indices};
}

at::Tensor embedding_bag_backward(const at::Tensor& grad, const at::Tensor& indices, const at::Tensor& offset2bag,
                                  const at::Tensor& bag_size, const at::Tensor& maximum_indices,
                                  c10::SymInt num_weights, bool scale_grad_by_freq, int64_t mode,
                                  const std::optional<at::Tensor>& per_sample_weights, int64_t padding_idx) {
  check_mode(mode);
  const auto wide = widened(grad);
  const int64_t num_rows = num_weights.guard_int(__FILE__, __LINE__);
  auto result = at::zeros({num_rows, grad.size(1)}, wide.options());
  if (mode == kMax) {
    const auto to = maximum_indices.to(at::kLong);
    result.scatter_add_(0, to.clamp_min(0), wide.masked_fill(to.eq(kNoIndex), 0));
    return result.to(grad.scalar_type());
  }
  auto rows = wide.index_select(0, offset2bag);
  if (mode == kMean) {
    rows.div_(bag_size.index_select(0, offset2bag).unsqueeze(1));
  }
  if (scale_grad_by_freq) {
    const auto counts = at::zeros({num_rows}, indices.options()).index_add_(0, indices, at::ones_like(indices));
    rows.div_(counts.index_select(0, indices).unsqueeze(1));
  }
  rows = rows_for(indices, rows, per_sample_weights.value_or(at::Tensor()), padding_idx);
  return result.index_add_(0, indices, rows).to(grad.scalar_type());
}

at::Tensor factors_backward(const at::Tensor& grad, const at::Tensor& weight, const at::Tensor& indices,
                            const at::Tensor& /*offsets*/, const at::Tensor& offset2bag, int64_t mode,
                            int64_t padding_idx) {
  TORCH_CHECK(mode == kSum, "embedding_bag: per_sample_weights have a gradient with mode='sum' only");
  const auto products = widened(grad.index_select(0, offset2bag)) * weight.index_select(0, indices);
  return rows_for(indices, products, at::Tensor(), padding_idx).sum(1).to(grad.scalar_type());
}

at::Tensor& embedding_renorm_(at::Tensor& self, const at::Tensor& indices, double max_norm, double norm_type) {
  const auto rows = indices.flatten();
  return self.index_copy_(0, rows.to(at::kLong),
                          distances::limited_norm(self.index_select(0, rows), norm_type, 0, max_norm));
}

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "_embedding_bag", _embedding_bag, embedding_bag);
  TB_COMPOSITION(m, "_embedding_bag_forward_only", _embedding_bag_forward_only, embedding_bag);
  TB_COMPOSITION(m, "_embedding_bag_dense_backward", _embedding_bag_dense_backward, embedding_bag_backward);
  TB_COMPOSITION(m, "_embedding_bag_per_sample_weights_backward", _embedding_bag_per_sample_weights_backward,
                 factors_backward);
  TB_COMPOSITION(m, "embedding_renorm_", embedding_renorm_, embedding_renorm_);
}

} // namespace torch_backend::compiled::bags
