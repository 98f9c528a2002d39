// Operators that move elements, and those that draw numbers.
#include <random>

#include "operator.h"

using namespace sim;

SIM_OPERATOR(Cat, const aclTensorList* tensors, int64_t dim, aclTensor* out) {
  if (!tensors || !out) return refuse(kNullParameter, "aclnnCat: NULL");
  const size_t count = tensors->tensors.size();
  for (const aclTensor* t : tensors->tensors)
    if (!t || t->dtype != out->dtype) return refuse(kInvalidParameter, "aclnnCat: tensors of several dtypes");
  return plan("aclnnCat", workspace, executor, tensors, {in(out)}, 512, [=](std::vector<view>& v) {
    const auto d = static_cast<size_t>(wrapped(dim, v[count].dim()));
    int64_t before = 0;
    for (size_t i = 0; i < count; ++i) {
      if (v[i].count() == 0) continue;
      view part = v[count];
      part.sizes = v[i].sizes;
      part.data += before * part.strides[d] * item_bytes(part.dtype);
      const auto to = part.offsets(), from = v[i].offsets();
      for (size_t e = 0; e < to.size(); ++e) move(part, to[e], v[i], from[e]);
      before += v[i].sizes[d];
    }
  });
}

SIM_OPERATOR(Arange, const aclScalar* start, const aclScalar* end, const aclScalar* step, aclTensor* out) {
  if (!start || !end || !step) return refuse(kNullParameter, "aclnnArange: a scalar is NULL");
  const aclScalar first = *start, by = *step;
  return plan("aclnnArange", workspace, executor, {in(out)}, 0, [=](std::vector<view>& v) {
    int64_t i = 0;
    for (const int64_t at : v[0].offsets()) {
      if (is_floating(v[0].dtype))
        v[0].store(at, first.f + static_cast<double>(i) * by.f);
      else
        v[0].store_integer(at, first.i + i * by.i);
      ++i;
    }
  });
}

namespace {

int triangle(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* self, int64_t diagonal,
             aclTensor* out, bool lower) {
  if (!self || !out || self->sizes.size() < 2) return refuse(kInvalidParameter, "%s: no matrices", name);
  return plan(name, workspace, executor, {in(self), in(out)}, 0, [=](std::vector<view>& v) {
    const auto from = v[0].offsets(), to = v[1].offsets();
    const auto rows = v[0].sizes[v[0].sizes.size() - 2], columns = v[0].sizes.back();
    for (size_t e = 0; e < from.size(); ++e) {
      const int64_t column = static_cast<int64_t>(e) % columns, row = static_cast<int64_t>(e) / columns % rows;
      const bool kept = lower ? column - row <= diagonal : column - row >= diagonal;
      if (kept)
        move(v[1], to[e], v[0], from[e]);
      else
        v[1].store_integer(to[e], 0);
    }
  });
}

// Calls f(offset along everything but dim, index along dim, offset of the index) for each element of `index`.
template <typename F>
void each_index(const view& index, const view& other, int64_t dim, F f) {
  const auto d = static_cast<size_t>(index.dim() ? wrapped(dim, index.dim()) : 0);
  view base = other;
  base.sizes = index.sizes;
  if (!base.strides.empty()) base.strides[d] = 0;
  const auto places = index.offsets(), starts = base.offsets();
  const int64_t step = other.strides.empty() ? 0 : other.strides[d];
  for (size_t e = 0; e < places.size(); ++e) f(e, starts[e] + index.integer(places[e]) * step);
}

} // namespace

SIM_OPERATOR(Tril, const aclTensor* self, int64_t diagonal, aclTensor* out) {
  return triangle("aclnnTril", workspace, executor, self, diagonal, out, true);
}
SIM_OPERATOR(Triu, const aclTensor* self, int64_t diagonal, aclTensor* out) {
  return triangle("aclnnTriu", workspace, executor, self, diagonal, out, false);
}

SIM_OPERATOR(IndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out) {
  if (!self || !index || !out) return refuse(kNullParameter, "aclnnIndexSelect: NULL");
  if ((index->dtype != kInt64 && index->dtype != kInt32) || self->dtype != out->dtype)
    return refuse(kInvalidParameter, "aclnnIndexSelect: dtypes");
  return plan("aclnnIndexSelect", workspace, executor, {in(self), in(index), in(out)}, 0, [=](std::vector<view>& v) {
    if (v[0].dim() == 0) return move(v[2], 0, v[0], 0);
    const auto d = static_cast<size_t>(wrapped(dim, v[0].dim()));
    view from = v[0], to = v[2];
    from.sizes[d] = to.sizes[d] = 1;
    const auto read = from.offsets(), written = to.offsets();
    int64_t next = 0;
    for (const int64_t at : v[1].offsets()) {
      const int64_t there = v[1].integer(at) * v[0].strides[d], here = next++ * v[2].strides[d];
      for (size_t e = 0; e < read.size(); ++e) move(v[2], written[e] + here, v[0], read[e] + there);
    }
  });
}

SIM_OPERATOR(Gather, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out) {
  if (!index || index->dtype != kInt64) return refuse(kInvalidParameter, "aclnnGather: indices are int64");
  return plan("aclnnGather", workspace, executor, {in(self), in(index), in(out)}, 0, [=](std::vector<view>& v) {
    const auto to = v[2].offsets();
    each_index(v[1], v[0], dim, [&](size_t e, int64_t from) { move(v[2], to[e], v[0], from); });
  });
}

SIM_OPERATOR(ScatterAdd, const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* source,
             aclTensor* out) {
  if (!index || index->dtype != kInt64) return refuse(kInvalidParameter, "aclnnScatterAdd: indices are int64");
  return plan("aclnnScatterAdd", workspace, executor, {in(self), in(index), in(source), in(out)}, 512,
              [=](std::vector<view>& v) {
                const auto first = v[0].offsets(), to = v[3].offsets();
                for (size_t e = 0; e < to.size(); ++e) move(v[3], to[e], v[0], first[e]);
                view part = v[2];
                part.sizes = v[1].sizes;
                const auto from = part.offsets();
                each_index(v[1], v[3], dim, [&](size_t e, int64_t at) {
                  if (is_floating(v[3].dtype))
                    v[3].store(at, v[3].number(at) + part.number(from[e]));
                  else
                    v[3].store_integer(at, v[3].integer(at) + part.integer(from[e]));
                });
              });
}

SIM_OPERATOR(EmbeddingDenseBackward, const aclTensor* gradient, const aclTensor* indices, uint64_t rows,
             uint64_t padding, bool by_frequency, aclTensor* out) {
  return plan("aclnnEmbeddingDenseBackward", workspace, executor, {in(gradient), in(indices), in(out)}, 512,
              [=](std::vector<view>& v) {
                const auto g = v[0].load(), places = v[1].load();
                const size_t width = g.size() / places.size();
                std::vector<double> result(rows * width), counts(rows);
                for (const double place : places) ++counts[static_cast<size_t>(place)];
                for (size_t i = 0; i < places.size(); ++i) {
                  const auto row = static_cast<size_t>(places[i]);
                  if (row == padding) continue;
                  for (size_t j = 0; j < width; ++j)
                    result[row * width + j] += g[i * width + j] / (by_frequency ? counts[row] : 1);
                }
                v[2].save(result);
              });
}

// ---- random numbers: the same from the same seed and offset ----

namespace {

std::mt19937_64 generator(uint64_t seed, uint64_t offset) {
  std::seed_seq both{uint32_t(seed), uint32_t(seed >> 32), uint32_t(offset), uint32_t(offset >> 32)};
  return std::mt19937_64(both);
}

template <typename Draw>
int fill(const char* name, uint64_t* workspace, aclOpExecutor** executor, aclTensor* self, uint64_t seed,
         uint64_t offset, Draw draw) {
  return plan(name, workspace, executor, {in(self)}, 512, [=](std::vector<view>& v) {
    auto random = generator(seed, offset);
    for (const int64_t at : v[0].offsets()) v[0].store(at, draw(random));
  });
}

// In [0, 1), with as many bits as the dtype has: none is rounded up to 1.
double uniform(std::mt19937_64& random, int dtype = kFloat) {
  const int bits = dtype == kDouble ? 53 : dtype == kHalf ? 11 : dtype == kBfloat16 ? 8 : 24;
  return std::ldexp(static_cast<double>(random() >> (64 - bits)), -bits);
}

} // namespace

SIM_OPERATOR(InplaceUniform, aclTensor* self, double from, double to, uint64_t seed, uint64_t offset) {
  if (!self || !(from <= to)) return refuse(kInvalidParameter, "aclnnInplaceUniform: from %g to %g", from, to);
  return fill("aclnnInplaceUniform", workspace, executor, self, seed, offset,
              [=, dtype = self->dtype](auto& random) { return from + (to - from) * uniform(random, dtype); });
}

SIM_OPERATOR(InplaceNormal, aclTensor* self, float mean, float deviation, int64_t seed, int64_t offset) {
  return fill("aclnnInplaceNormal", workspace, executor, self, uint64_t(seed), uint64_t(offset), [=](auto& random) {
    const double u = 1 - uniform(random), angle = 6.283185307179586 * uniform(random);
    return mean + deviation * std::sqrt(-2 * std::log(u)) * std::cos(angle);
  });
}

SIM_OPERATOR(InplaceBernoulli, aclTensor* self, const aclScalar* probability, int64_t seed, int64_t offset) {
  if (!probability) return refuse(kNullParameter, "aclnnInplaceBernoulli: prob is NULL");
  const double p = probability->f;
  if (!(p >= 0 && p <= 1)) return refuse(kInvalidParameter, "aclnnInplaceBernoulli: prob is %g", p);
  return fill("aclnnInplaceBernoulli", workspace, executor, self, uint64_t(seed), uint64_t(offset),
              [=](auto& random) { return uniform(random) < p ? 1.0 : 0.0; });
}

SIM_OPERATOR(Multinomial, const aclTensor* self, int64_t samples, bool replacement, int64_t seed, int64_t offset,
             aclTensor* out) {
  return plan("aclnnMultinomial", workspace, executor, {in(self), in(out)}, 512, [=](std::vector<view>& v) {
    auto random = generator(uint64_t(seed), uint64_t(offset));
    const auto weights = v[0].load();
    const auto categories = static_cast<size_t>(v[0].sizes.back());
    std::vector<double> drawn;
    for (size_t row = 0; row < weights.size() / categories; ++row) {
      std::vector<double> left(&weights[row * categories], &weights[row * categories] + categories);
      for (int64_t i = 0; i < samples; ++i) {
        double sum = 0;
        for (const double w : left) sum += w;
        double point = uniform(random) * sum;
        size_t at = 0;
        while (at + 1 < categories && point >= left[at]) point -= left[at++];
        while (at > 0 && left[at] == 0) --at; // the last ones may have no weight
        drawn.push_back(static_cast<double>(at));
        if (!replacement) left[at] = 0;
      }
    }
    v[1].save(drawn);
  });
}
