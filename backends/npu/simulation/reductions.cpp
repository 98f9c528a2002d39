// Sums and the like, running sums, the best elements.
#include <numeric>

#include "operator.h"

using namespace sim;

namespace {

using reduction = std::function<at::Tensor(const at::Tensor& self, at::IntArrayRef dims)>;

// Over all dimensions if the list is empty.
int reduce(const char* name, uint64_t* workspace, aclOpExecutor** executor, const aclTensor* self,
           const aclIntArray* dims, const aclTensor* out, reduction of) {
  if (!self || !out) return refuse(kNullParameter, "%s: a tensor is NULL", name);
  aclIntArray all = dims ? *dims : aclIntArray();
  if (all.empty()) all.resize(self->sizes.size()), std::iota(all.begin(), all.end(), 0);
  return plan(name, workspace, executor, {in(self), in(out)}, 512, [=](tensors& v) { write(v[1], of(v[0], all)); });
}

int check_dtype(const char* name, int dtype, const aclTensor* out) {
  return out && out->dtype == scalar_type_of(dtype)
             ? kOk
             : refuse(kInvalidParameter, "%s: dtype %d is not the output's", name, dtype);
}

int check_places(const char* name, const aclTensor* places, bool may_be_short) {
  const bool fits = places && (places->dtype == at::kLong || (may_be_short && places->dtype == at::kInt));
  return fits ? kOk : refuse(kInvalidParameter, "%s: places are integers, of 64 bits where it says so", name);
}

} // namespace

#define REDUCTION(NAME, RESULT)                                                                    \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclIntArray* dims, bool keep, aclTensor* out) {  \
    return reduce("aclnn" #NAME, workspace, executor, self, dims, out,                             \
                  [=](const at::Tensor& x, at::IntArrayRef all) { return RESULT(x, all, keep); }); \
  }
#define REDUCTION_WITH_DTYPE(NAME, RESULT)                                                                             \
  SIM_OPERATOR(NAME, const aclTensor* self, const aclIntArray* dims, bool keep, int dtype, aclTensor* out) {           \
    if (const int error = check_dtype("aclnn" #NAME, dtype, out)) return error;                                        \
    return reduce("aclnn" #NAME, workspace, executor, self, dims, out, [=](const at::Tensor& x, at::IntArrayRef all) { \
      return RESULT(x, all, keep, scalar_type_of(dtype));                                                              \
    });                                                                                                                \
  }

REDUCTION_WITH_DTYPE(ReduceSum, at::sum)
REDUCTION_WITH_DTYPE(Mean, at::mean)
REDUCTION(Amax, at::amax)
REDUCTION(Amin, at::amin)
REDUCTION(All, at::all)
REDUCTION(Any, at::any)

SIM_OPERATOR(LinalgVectorNorm, const aclTensor* self, const aclScalar* order, const aclIntArray* dims, bool keep,
             int dtype, aclTensor* out) {
  if (const int error = check_dtype("aclnnLinalgVectorNorm", dtype, out)) return error;
  if (!order) return refuse(kNullParameter, "aclnnLinalgVectorNorm: ord is NULL");
  return reduce("aclnnLinalgVectorNorm", workspace, executor, self, dims, out,
                [=, p = *order](const at::Tensor& x, at::IntArrayRef all) {
                  return at::linalg_vector_norm(x, p, all, keep, scalar_type_of(dtype));
                });
}

SIM_OPERATOR(Cumsum, const aclTensor* self, int64_t dim, int dtype, aclTensor* out) {
  if (const int error = check_dtype("aclnnCumsum", dtype, out)) return error;
  return plan("aclnnCumsum", workspace, executor, {in(self), in(out)}, 512,
              [=](tensors& v) { write(v[1], at::cumsum(v[0], dim, v[1].scalar_type())); });
}

SIM_OPERATOR(ArgMax, const aclTensor* self, int64_t dim, bool keep, aclTensor* out) {
  if (const int error = check_places("aclnnArgMax", out, true)) return error;
  return plan("aclnnArgMax", workspace, executor, {in(self), in(out)}, 512,
              [=](tensors& v) { write(v[1], at::argmax(v[0], dim, keep)); });
}

SIM_OPERATOR(ArgMin, const aclTensor* self, int64_t dim, bool keep, aclTensor* out) {
  if (const int error = check_places("aclnnArgMin", out, true)) return error;
  return plan("aclnnArgMin", workspace, executor, {in(self), in(out)}, 512,
              [=](tensors& v) { write(v[1], at::argmin(v[0], dim, keep)); });
}

SIM_OPERATOR(Topk, const aclTensor* self, int64_t k, int64_t dim, bool largest, bool sorted, aclTensor* values,
             aclTensor* places) {
  if (const int error = check_places("aclnnTopk", places, false)) return error;
  return plan("aclnnTopk", workspace, executor, {in(self), in(values), in(places)}, 512, [=](tensors& v) {
    const auto [best, where] = at::topk(v[0], k, dim, largest, sorted);
    write(v[1], best), write(v[2], where);
  });
}
