// Operators that move elements, and those that draw numbers.
#include <ATen/CPUGeneratorImpl.h>

#include "operator.h"

using namespace sim;

SIM_OPERATOR(Cat, const aclTensorList* list, int64_t dim, aclTensor* out) {
  if (!list || !out) return refuse(kNullParameter, "aclnnCat: NULL");
  for (const aclTensor* t : *list)
    if (!t || t->dtype != out->dtype) return refuse(kInvalidParameter, "aclnnCat: tensors of several dtypes");
  return plan(
      "aclnnCat", workspace, executor, {in(out)}, 512,
      [=](tensors& v) { write(v.back(), at::cat(at::TensorList(v).slice(0, v.size() - 1), dim)); }, list);
}

SIM_OPERATOR(Arange, const aclScalar* start, const aclScalar* end, const aclScalar* step, aclTensor* out) {
  if (!start || !end || !step) return refuse(kNullParameter, "aclnnArange: a scalar is NULL");
  return plan("aclnnArange", workspace, executor, {in(out)}, 0, [from = *start, to = *end, by = *step](tensors& v) {
    write(v[0], at::arange(from, to, by, v[0].options()));
  });
}

SIM_OPERATOR(Tril, const aclTensor* self, int64_t diagonal, aclTensor* out) {
  return plan("aclnnTril", workspace, executor, {in(self), in(out)}, 0,
              [=](tensors& v) { write(v[1], at::tril(v[0], diagonal)); });
}
SIM_OPERATOR(Triu, const aclTensor* self, int64_t diagonal, aclTensor* out) {
  return plan("aclnnTriu", workspace, executor, {in(self), in(out)}, 0,
              [=](tensors& v) { write(v[1], at::triu(v[0], diagonal)); });
}

SIM_OPERATOR(IndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out) {
  if (!self || !index || !out) return refuse(kNullParameter, "aclnnIndexSelect: NULL");
  if ((index->dtype != at::kLong && index->dtype != at::kInt) || self->dtype != out->dtype)
    return refuse(kInvalidParameter, "aclnnIndexSelect: dtypes");
  return plan("aclnnIndexSelect", workspace, executor, {in(self), in(index), in(out)}, 0,
              [=](tensors& v) { write(v[2], at::index_select(v[0], dim, v[1])); });
}

SIM_OPERATOR(Gather, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out) {
  if (!index || index->dtype != at::kLong) return refuse(kInvalidParameter, "aclnnGather: indices are int64");
  return plan("aclnnGather", workspace, executor, {in(self), in(index), in(out)}, 0,
              [=](tensors& v) { write(v[2], at::gather(v[0], dim, v[1])); });
}

SIM_OPERATOR(ScatterAdd, const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* source,
             aclTensor* out) {
  if (!index || index->dtype != at::kLong) return refuse(kInvalidParameter, "aclnnScatterAdd: indices are int64");
  return plan("aclnnScatterAdd", workspace, executor, {in(self), in(index), in(source), in(out)}, 512,
              [=](tensors& v) { write(v[3], at::scatter_add(v[0], dim, v[1], v[2])); });
}

SIM_OPERATOR(EmbeddingDenseBackward, const aclTensor* gradient, const aclTensor* indices, uint64_t rows,
             uint64_t padding, bool by_frequency, aclTensor* out) {
  return plan("aclnnEmbeddingDenseBackward", workspace, executor, {in(gradient), in(indices), in(out)}, 512,
              [=](tensors& v) {
                write(v[2], at::embedding_dense_backward(v[0], v[1], static_cast<int64_t>(rows),
                                                         static_cast<int64_t>(padding), by_frequency));
              });
}

// ---- random numbers: the same from the same seed and offset ----

namespace {

at::Generator generator(uint64_t seed, uint64_t offset) {
  return at::detail::createCPUGenerator(seed ^ (offset * 0x9E3779B97F4A7C15));
}

} // namespace

SIM_OPERATOR(InplaceUniform, aclTensor* self, double from, double to, uint64_t seed, uint64_t offset) {
  if (!(from <= to)) return refuse(kInvalidParameter, "aclnnInplaceUniform: from %g to %g", from, to);
  return plan("aclnnInplaceUniform", workspace, executor, {in(self)}, 512,
              [=](tensors& v) { v[0].uniform_(from, to, generator(seed, offset)); });
}

SIM_OPERATOR(InplaceNormal, aclTensor* self, float mean, float deviation, int64_t seed, int64_t offset) {
  return plan("aclnnInplaceNormal", workspace, executor, {in(self)}, 512, [=](tensors& v) {
    v[0].normal_(mean, deviation, generator(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)));
  });
}

SIM_OPERATOR(InplaceBernoulli, aclTensor* self, const aclScalar* probability, int64_t seed, int64_t offset) {
  if (!probability) return refuse(kNullParameter, "aclnnInplaceBernoulli: prob is NULL");
  const double p = probability->toDouble();
  if (!(p >= 0 && p <= 1)) return refuse(kInvalidParameter, "aclnnInplaceBernoulli: prob is %g", p);
  return plan("aclnnInplaceBernoulli", workspace, executor, {in(self)}, 512, [=](tensors& v) {
    v[0].bernoulli_(p, generator(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)));
  });
}

SIM_OPERATOR(Multinomial, const aclTensor* self, int64_t samples, bool replacement, int64_t seed, int64_t offset,
             aclTensor* out) {
  return plan("aclnnMultinomial", workspace, executor, {in(self), in(out)}, 512, [=](tensors& v) {
    const auto random = generator(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset));
    write(v[1], at::multinomial(v[0], samples, replacement, random));
  });
}
