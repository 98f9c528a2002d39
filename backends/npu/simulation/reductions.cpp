// Sums and the like, running sums, the best elements.
#include <algorithm>
#include <limits>
#include <numeric>

#include "operator.h"

using namespace sim;

namespace {

// Which dimensions; all if the list is empty.
std::vector<bool> reduced_dims(const aclIntArray* dims, size_t ndim) {
  std::vector<bool> reduced(ndim, !dims || dims->values.empty());
  if (dims)
    for (const int64_t d : dims->values)
      if (ndim) reduced[static_cast<size_t>(wrapped(d, static_cast<int64_t>(ndim)))] = true;
  return reduced;
}

// Whether the output has the shape that is left.
bool fits(const aclTensor& self, const std::vector<bool>& reduced, bool keep, const aclTensor& out) {
  std::vector<int64_t> left;
  for (size_t i = 0; i < self.sizes.size(); ++i) {
    if (!reduced[i]) left.push_back(self.sizes[i]);
    if (reduced[i] && keep) left.push_back(1);
  }
  return left == out.sizes;
}

// The output's elements in their order, each with the offsets of the elements it is made of.
std::vector<std::vector<int64_t>> groups(const view& self, const std::vector<bool>& reduced) {
  view kept = self, gone = self;
  for (size_t i = 0; i < reduced.size(); ++i) (reduced[i] ? kept : gone).sizes[i] = 1;
  const auto starts = kept.offsets(), steps = gone.offsets();
  std::vector<std::vector<int64_t>> all;
  for (const int64_t start : starts) {
    all.emplace_back();
    for (const int64_t step : steps) all.back().push_back(start + step);
  }
  return all;
}

using fold = std::function<double(const std::vector<double>&)>;

int reduce(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* self,
           const aclIntArray* dims, bool keep, const aclTensor* out, fold f) {
  if (!self || !out) return refuse(kNullParameter, "%s: a tensor is NULL", name);
  const auto reduced = reduced_dims(dims, self->sizes.size());
  if (!fits(*self, reduced, keep, *out)) return refuse(kInvalidParameter, "%s: the output has another shape", name);
  return plan(name, workspace, executor, {in(self), in(out)}, 512, [=](std::vector<view>& v) {
    std::vector<double> results;
    for (const auto& group : groups(v[0], reduced)) {
      std::vector<double> values;
      for (const int64_t at : group) values.push_back(v[0].number(at));
      results.push_back(f(values));
    }
    v[1].save(results);
  });
}

double sum_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0);
}

double best_of(const std::vector<double>& x, double sign) {
  double best = x[0];
  for (const double value : x)
    if (std::isnan(value))
      return value;
    else if (sign * value > sign * best)
      best = value;
  return best;
}

int check_dtype(const char* name, int dtype, const aclTensor* out) {
  return out && out->dtype == dtype ? kOk : refuse(kInvalidParameter, "%s: dtype %d is not the output's", name, dtype);
}

} // namespace

SIM_OPERATOR(ReduceSum, const aclTensor* self, const aclIntArray* dims, bool keep, int dtype, aclTensor* out) {
  constexpr char name[] = "aclnnReduceSum";
  if (const int error = check_dtype(name, dtype, out)) return error;
  if (!self || is_floating(dtype)) return reduce(name, workspace, executor, self, dims, keep, out, sum_of);
  const auto reduced = reduced_dims(dims, self->sizes.size());
  if (!fits(*self, reduced, keep, *out)) return refuse(kInvalidParameter, "%s: the output has another shape", name);
  return plan(name, workspace, executor, {in(self), in(out)}, 512, [=](std::vector<view>& v) {
    const auto written = v[1].offsets();
    const auto read = groups(v[0], reduced);
    for (size_t i = 0; i < written.size(); ++i) {
      int64_t sum = 0;
      for (const int64_t at : read[i]) sum += v[0].integer(at);
      v[1].store_integer(written[i], sum);
    }
  });
}

SIM_OPERATOR(Mean, const aclTensor* self, const aclIntArray* dims, bool keep, int dtype, aclTensor* out) {
  if (const int error = check_dtype("aclnnMean", dtype, out)) return error;
  return reduce("aclnnMean", workspace, executor, self, dims, keep, out,
                [](const auto& x) { return sum_of(x) / static_cast<double>(x.size()); });
}

SIM_OPERATOR(Amax, const aclTensor* self, const aclIntArray* dims, bool keep, aclTensor* out) {
  return reduce("aclnnAmax", workspace, executor, self, dims, keep, out, [](const auto& x) { return best_of(x, 1); });
}

SIM_OPERATOR(Amin, const aclTensor* self, const aclIntArray* dims, bool keep, aclTensor* out) {
  return reduce("aclnnAmin", workspace, executor, self, dims, keep, out, [](const auto& x) { return best_of(x, -1); });
}

SIM_OPERATOR(All, const aclTensor* self, const aclIntArray* dims, bool keep, aclTensor* out) {
  return reduce("aclnnAll", workspace, executor, self, dims, keep, out,
                [](const auto& x) { return std::all_of(x.begin(), x.end(), [](double value) { return value != 0; }); });
}

SIM_OPERATOR(Any, const aclTensor* self, const aclIntArray* dims, bool keep, aclTensor* out) {
  return reduce("aclnnAny", workspace, executor, self, dims, keep, out,
                [](const auto& x) { return std::any_of(x.begin(), x.end(), [](double value) { return value != 0; }); });
}

SIM_OPERATOR(LinalgVectorNorm, const aclTensor* self, const aclScalar* order, const aclIntArray* dims, bool keep,
             int dtype, aclTensor* out) {
  if (const int error = check_dtype("aclnnLinalgVectorNorm", dtype, out)) return error;
  if (!order) return refuse(kNullParameter, "aclnnLinalgVectorNorm: ord is NULL");
  const double p = order->f;
  return reduce("aclnnLinalgVectorNorm", workspace, executor, self, dims, keep, out, [p](const std::vector<double>& x) {
    double total = p == -INFINITY ? INFINITY : 0;
    for (double value : x) {
      value = std::abs(value);
      if (std::isnan(value)) return value;
      if (p == INFINITY)
        total = std::max(total, value);
      else if (p == -INFINITY)
        total = std::min(total, value);
      else if (p == 0)
        total += value != 0;
      else
        total += p == 2 ? value * value : std::pow(value, p);
    }
    return std::isinf(p) || p == 0 ? total : p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
  });
}

SIM_OPERATOR(Cumsum, const aclTensor* self, int64_t dim, int dtype, aclTensor* out) {
  if (const int error = check_dtype("aclnnCumsum", dtype, out)) return error;
  return plan("aclnnCumsum", workspace, executor, {in(self), in(out)}, 512, [=](std::vector<view>& v) {
    std::vector<bool> along(v[0].sizes.size());
    if (!along.empty()) along[static_cast<size_t>(wrapped(dim, v[0].dim()))] = true;
    const auto read = groups(v[0], along), written = groups(v[1], along);
    for (size_t g = 0; g < read.size(); ++g) {
      double sum = 0;
      int64_t whole = 0;
      for (size_t i = 0; i < read[g].size(); ++i) {
        sum += v[0].number(read[g][i]);
        whole += v[0].integer(read[g][i]);
        is_floating(dtype) ? v[1].store(written[g][i], sum) : v[1].store_integer(written[g][i], whole);
      }
    }
  });
}

namespace {

// The first that no other is better than; nan is better than all.
int place_of_best(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* self, int64_t dim,
                  bool keep, const aclTensor* out, double sign) {
  if (!self || !out) return refuse(kNullParameter, "%s: a tensor is NULL", name);
  if (out->dtype != kInt64 && out->dtype != kInt32) return refuse(kInvalidParameter, "%s: places are integers", name);
  const aclIntArray dims{{dim}};
  return reduce(name, workspace, executor, self, &dims, keep, out, [sign](const std::vector<double>& x) {
    size_t best = 0;
    for (size_t i = 1; i < x.size() && !std::isnan(x[best]); ++i)
      if (std::isnan(x[i]) || sign * x[i] > sign * x[best]) best = i;
    return static_cast<double>(best);
  });
}

} // namespace

SIM_OPERATOR(ArgMax, const aclTensor* self, int64_t dim, bool keep, aclTensor* out) {
  return place_of_best("aclnnArgMax", workspace, executor, self, dim, keep, out, 1);
}

SIM_OPERATOR(ArgMin, const aclTensor* self, int64_t dim, bool keep, aclTensor* out) {
  return place_of_best("aclnnArgMin", workspace, executor, self, dim, keep, out, -1);
}

SIM_OPERATOR(Topk, const aclTensor* self, int64_t k, int64_t dim, bool largest, bool, aclTensor* values,
             aclTensor* places) {
  if (!places || places->dtype != kInt64) return refuse(kInvalidParameter, "aclnnTopk: places are int64");
  return plan("aclnnTopk", workspace, executor, {in(self), in(values), in(places)}, 512, [=](std::vector<view>& v) {
    std::vector<bool> along(v[0].sizes.size());
    if (!along.empty()) along[static_cast<size_t>(wrapped(dim, v[0].dim()))] = true;
    const auto read = groups(v[0], along), to_values = groups(v[1], along), to_places = groups(v[2], along);
    for (size_t g = 0; g < read.size(); ++g) {
      std::vector<size_t> order(read[g].size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        const double x = v[0].number(read[g][a]), y = v[0].number(read[g][b]);
        if (std::isnan(x) || std::isnan(y))
          return largest ? std::isnan(x) && !std::isnan(y) : !std::isnan(x) && std::isnan(y);
        return largest ? x > y : x < y;
      });
      for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
        move(v[1], to_values[g][i], v[0], read[g][order[i]]);
        v[2].store_integer(to_places[g][i], static_cast<int64_t>(order[i]));
      }
    }
  });
}
