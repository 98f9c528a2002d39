#include "csrc/ops/native/ComposedAttention.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include "csrc/ops/compiled/engine/Dropout.h"

namespace torch_backend::composed_attention {
namespace {

using compiled::attention::Call;
using compiled::attention::Drawn;

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// In single precision, and with a head for each of the queries'.
at::Tensor for_each_query(const at::Tensor& keys, const Call& call) {
  auto sizes = keys.sizes().vec();
  sizes.insert(sizes.begin() + 2, call.query.size(1) / keys.size(1));
  return keys.to(at::kFloat).unsqueeze(2).expand(sizes).flatten(1, 2);
}

/// The sums of what those of a head have, in the shape of `keys`.
at::Tensor of_each_key(const at::Tensor& gradient, const at::Tensor& keys) {
  return gradient.unflatten(1, {keys.size(1), -1}).sum(2);
}

at::Tensor scores_of(const Call& call) {
  auto scores = at::matmul(call.query.to(at::kFloat), for_each_query(call.key, call).transpose(2, 3)).mul_(call.scale);
  if (call.bias.defined()) {
    call.bias.scalar_type() == at::kBool ? scores.masked_fill_(call.bias.logical_not(), kNone) : scores.add_(call.bias);
  }
  if (call.is_causal) {
    const auto later = at::ones({scores.size(2), scores.size(3)}, scores.options().dtype(at::kBool)).triu(1);
    scores.masked_fill_(later, kNone);
  }
  return scores;
}

/// Those of a row without places are 0.
at::Tensor weights_of(const at::Tensor& scores, const at::Tensor& logarithms) {
  return scores.sub(logarithms.masked_fill(logarithms.eq(kNone), 0).unsqueeze(3)).exp_();
}

/// What weights are multiplied by: 0, or what makes up for those that are dropped.
at::Tensor kept_of(const Call& call, const Drawn& drawn, const at::Tensor& weights) {
  const auto seed = static_cast<uint64_t>(drawn.seed.item<int64_t>());
  const auto step = static_cast<uint64_t>(drawn.offset.item<int64_t>()) / 4;
  const int64_t below = compiled::below_with_probability(1 - call.dropout_p);
  const auto factor = static_cast<float>(call.dropout_p < 1 ? 1 / (1 - call.dropout_p) : 0.0);
  const at::Tensor kept = at::empty(weights.sizes(), at::TensorOptions(at::kFloat));
  auto* const factors = kept.mutable_data_ptr<float>();
  for (int64_t i = 0; i < kept.numel(); i += 4) {
    at::Philox4_32 engine(seed, static_cast<uint64_t>(i / 4), step);
    for (int64_t j = i; j < std::min(i + 4, kept.numel()); ++j) {
      factors[j] = static_cast<int64_t>(engine()) < below ? factor : 0.0F;
    }
  }
  return kept.to(weights.device());
}

} // namespace

void forward(const Call& call, const Drawn& drawn, const at::Tensor& out, const at::Tensor& logarithms) {
  const at::Tensor scores = scores_of(call);
  logarithms.copy_(at::logsumexp(scores, 3));
  at::Tensor weights = weights_of(scores, logarithms);
  if (call.dropout_p > 0) {
    weights.mul_(kept_of(call, drawn, weights));
  }
  out.copy_(at::matmul(weights, for_each_query(call.value, call)));
}

void backward(const Call& call, const Drawn& drawn, const at::Tensor& grad_out, const at::Tensor& out,
              const at::Tensor& logarithms, const at::Tensor& grad_query, const at::Tensor& grad_key,
              const at::Tensor& grad_value) {
  const at::Tensor of_result = grad_out.to(at::kFloat);
  const at::Tensor weights = weights_of(scores_of(call), logarithms);
  at::Tensor of_weights = at::matmul(of_result, for_each_query(call.value, call).transpose(2, 3));
  at::Tensor dropped = weights;
  if (call.dropout_p > 0) {
    const at::Tensor kept = kept_of(call, drawn, weights);
    dropped = weights.mul(kept);
    of_weights.mul_(kept);
  }
  const at::Tensor of_scores =
      of_weights.sub_(of_result.mul(out).sum(3, /*keepdim=*/true)).mul_(weights).mul_(call.scale);
  grad_query.copy_(at::matmul(of_scores, for_each_query(call.key, call)));
  grad_key.copy_(of_each_key(at::matmul(of_scores.transpose(2, 3), call.query.to(at::kFloat)), call.key));
  grad_value.copy_(of_each_key(at::matmul(dropped.transpose(2, 3), of_result), call.value));
}

} // namespace torch_backend::composed_attention
