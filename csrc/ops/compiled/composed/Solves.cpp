// Triangular systems and Cholesky's factors, of which all but blocks at the diagonal are matrix products: where the
// host cannot reach the memory.

#include <tuple>

#include <ATen/ATen.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/engine/Enqueue.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"

namespace torch_backend::compiled::solves {
namespace {

constexpr int64_t kBlock = 64;  // larger systems are divided
constexpr int64_t kFactor = 32; // larger matrices are

struct Triangle {
  bool upper;
  bool unit;
  bool conjugate = false; // of the matrices that are given
};

bool is_taken(const at::Tensor& a) {
  const auto type = a.scalar_type();
  return (c10::toRealValueType(type) == at::kFloat || c10::toRealValueType(type) == at::kDouble) &&
         computes(a.device().index(), value_type(tb_dtype_or_none(type)));
}

bool are_taken(const at::Tensor& a, const at::Tensor& b) {
  return is_taken(a) && a.scalar_type() == b.scalar_type();
}

// ---- triangular systems ----

void solve_block(const at::Tensor& a, const at::Tensor& x, Triangle triangle) {
  Part columns;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != x.dim() - 2) {
      columns.sizes.push_back(x.size(d));
      columns.strides[0].push_back(x.stride(d));
      columns.strides[1].push_back(d == x.dim() - 1 ? 0 : a.stride(d));
    }
  }
  columns.collapse(2, {});
  const int64_t size = a.size(-1);
  const int64_t reach =
      std::max(columns.reach(0) + size * x.stride(-2), columns.reach(1) + size * (a.stride(-2) + a.stride(-1)));
  const bool fits_32 = reach < Geometry::kLimit32 && columns.geometry.count < Geometry::kLimit32;
  const auto type = value_type(tb_dtype_or_none(a.scalar_type()));
  static constexpr Skeleton kTriangular{"triangular", "triangular"};
  Specialization wanted(kTriangular);
  wanted.compute_in(type)
      .index_of(fits_32)
      .type("VALUE", type)
      .number("KEPT", columns.geometry.rank_class())
      .flag("BACKWARD", triangle.upper)
      .flag("UNIT", triangle.unit)
      .flag("CONJUGATE", triangle.conjugate)
      .parameters(2);
  const auto& function = find_function(a.device().index(), wanted);
  enqueue(a, "aten::linalg_solve_triangular", [&](Launch& launch) {
    launch.pointer(x.mutable_data_ptr());
    launch.pointer(a.const_data_ptr());
    ArgsStruct args;
    args.add({columns.geometry.count, size, x.stride(-2), a.stride(-2), a.stride(-1)});
    args.add_dims(columns.geometry);
    args.pass(launch);
    launch.run_each(function, columns.geometry.count, size * size);
  });
}

/// `x` is the right side, and becomes the solution; both have the same batch dimensions.
void solve(const at::Tensor& a, const at::Tensor& x, Triangle triangle) {
  const int64_t size = a.size(-1);
  if (size <= kBlock) {
    solve_block(a, x, triangle);
    return;
  }
  const int64_t half = (size / 2 + kBlock - 1) / kBlock * kBlock;
  const std::array<int64_t, 2> starts{0, half}, sizes{half, size - half};
  const std::size_t first = triangle.upper ? 1 : 0, second = 1 - first;
  const auto rows = [&](const at::Tensor& of, std::size_t i) { return of.narrow(-2, starts[i], sizes[i]); };
  const auto columns = [&](const at::Tensor& of, std::size_t i) { return of.narrow(-1, starts[i], sizes[i]); };
  solve(columns(rows(a, first), first), rows(x, first), triangle);
  const auto beside = columns(rows(a, second), first);
  rows(x, second).sub_(at::matmul(triangle.conjugate ? beside.conj() : beside, rows(x, first)));
  solve(columns(rows(a, second), second), rows(x, second), triangle);
}

/// A new tensor with the matrices' columns side by side, as LAPACK has them.
at::Tensor by_columns(const at::Tensor& matrices) {
  const auto strides = at::native::batched_matrix_contiguous_strides(matrices.sizes(), /*f_contig=*/true);
  return at::empty_strided(matrices.sizes(), strides, matrices.options()).copy_(matrices);
}

/// The rest of an out= form, as PyTorch does what is structured: `out` gets the result's strides where it is resized.
at::Tensor& write_by_columns(at::Tensor& out, const at::Tensor& result) {
  check_out_dtype(out, result);
  if (at::native::resize_output(out, result.sizes())) {
    out.as_strided_(result.sizes(), result.strides());
  }
  return out.copy_(result);
}

/// `a` and `b` have the same batch dimensions.
at::Tensor solution(const at::Tensor& a, const at::Tensor& b, Triangle triangle, bool left) {
  const auto x = by_columns(b);
  if (x.numel() > 0) {
    const auto matrices = a.dim() < Geometry::kMaxRank ? a : a.contiguous(); // batches that can be put together
    left ? solve(matrices, x, triangle)
         : solve(matrices.mT(), x.mT(), {!triangle.upper, triangle.unit, triangle.conjugate});
  }
  return x;
}

at::Tensor solve_triangular(const at::Tensor& a, const at::Tensor& b, bool upper, bool left, bool unitriangular) {
  if (!are_taken(a, b)) {
    return AtenKernel<at::_ops::linalg_solve_triangular>::call_boxed(a, b, upper, left, unitriangular);
  }
  at::native::checkInputsSolver(a, b, left, "linalg.solve_triangular");
  const auto [given, right] = at::native::_linalg_broadcast_batch_dims(a.resolve_neg(), b, nullptr);
  const bool conjugate = given.is_conj(); // this operator is given views of conjugates
  const auto x = solution(conjugate ? given.conj() : given, right, {upper, unitriangular, conjugate}, left);
  return conjugate && given.mT().is_contiguous() ? x.contiguous() : x; // as PyTorch lays it out
}

std::tuple<at::Tensor, at::Tensor> solve_legacy(const at::Tensor& self, const at::Tensor& a, bool upper, bool transpose,
                                                bool unitriangular) {
  if (!are_taken(a, self)) {
    return AtenKernel<at::_ops::triangular_solve>::call_boxed(self, a, upper, transpose, unitriangular);
  }
  TORCH_CHECK(self.dim() >= 2, "torch.triangular_solve: Expected b to have at least 2 dimensions, but it has ",
              self.dim(), " dimensions instead");
  TORCH_CHECK(a.dim() >= 2, "torch.triangular_solve: Expected A to have at least 2 dimensions, but it has ", a.dim(),
              " dimensions instead");
  const auto [right, matrices] = at::native::_linalg_broadcast_batch_dims(self, a, "triangular_solve");
  const Triangle triangle{upper != transpose, unitriangular};
  return {solution(transpose ? matrices.mT() : matrices, right, triangle, /*left=*/true), by_columns(matrices)};
}

std::tuple<at::Tensor&, at::Tensor&> solve_legacy_out(const at::Tensor& self, const at::Tensor& a, bool upper,
                                                      bool transpose, bool unitriangular, at::Tensor& x,
                                                      at::Tensor& m) {
  check_out(x, self, a);
  check_out(m, self, a);
  const auto [solved, matrices] = solve_legacy(self, a, upper, transpose, unitriangular);
  return {write_by_columns(x, solved), write_by_columns(m, matrices)};
}

// ---- Cholesky's factors ----

void factor_block(const at::Tensor& lower, const at::Tensor& info, int64_t minors) {
  Part matrices;
  for (int64_t d = 0; d < info.dim(); ++d) {
    matrices.sizes.push_back(lower.size(d));
    matrices.strides[0].push_back(lower.stride(d));
    matrices.strides[1].push_back(info.stride(d));
  }
  matrices.collapse(2, {});
  const auto type = value_type(tb_dtype_or_none(lower.scalar_type()));
  static constexpr Skeleton kCholesky{"cholesky", "cholesky"};
  Specialization wanted(kCholesky);
  wanted.compute_in(type)
      .index_of(/*fits_32=*/false)
      .type("VALUE", type)
      .number("KEPT", matrices.geometry.rank_class())
      .number("SIZE", kFactor)
      .parameters(2);
  const auto& function = find_function(lower.device().index(), wanted);
  enqueue(lower, "aten::linalg_cholesky_ex", [&](Launch& launch) {
    launch.pointer(lower.mutable_data_ptr());
    launch.pointer(info.mutable_data_ptr());
    const int64_t size = lower.size(-1), count = matrices.geometry.count;
    ArgsStruct args;
    args.add({count, size, lower.stride(-2), lower.stride(-1), minors});
    args.add_dims(matrices.geometry);
    args.pass(launch);
    if (runs_in_stretches(lower.device().index())) {
      launch.run(function, count, size * size * size);
    } else {
      launch.run_blocks(function, count, std::min<uint32_t>(block_items(lower.device().index()), kFactor));
    }
  });
}

/// The lower triangle of `lower` becomes the factor; what is above it is undefined.
void factorize(const at::Tensor& lower, const at::Tensor& info, int64_t minors) {
  const int64_t size = lower.size(-1);
  if (size <= kFactor) {
    factor_block(lower, info, minors);
    return;
  }
  const int64_t half = (size / 2 + kFactor - 1) / kFactor * kFactor, rest = size - half;
  const auto below = lower.narrow(-2, half, rest);
  const auto first = lower.narrow(-2, 0, half).narrow(-1, 0, half), beside = below.narrow(-1, 0, half);
  factorize(first, info, minors);
  solve(first, beside.mT(), {/*upper=*/false, /*unit=*/false, lower.is_complex()});
  const auto last = below.narrow(-1, half, rest);
  last.sub_(at::matmul(beside, beside.mH()));
  factorize(last, info, minors + half);
}

std::tuple<at::Tensor, at::Tensor> cholesky_ex(const at::Tensor& self, bool upper, bool check_errors) {
  if (!is_taken(self)) {
    return AtenKernel<at::_ops::linalg_cholesky_ex>::call_boxed(self, upper, check_errors);
  }
  at::native::squareCheckInputs(self, "linalg.cholesky");
  const auto factor = by_columns(self);
  const auto info = at::zeros(self.sizes().slice(0, self.dim() - 2), self.options().dtype(at::kInt));
  if (factor.numel() > 0) {
    factorize(upper ? factor.mT() : factor, info, 0);
    upper ? factor.triu_() : factor.tril_();
  }
  if (check_errors) {
    at::_linalg_check_errors(info, "linalg.cholesky_ex", self.dim() == 2);
  }
  return {factor, info};
}

std::tuple<at::Tensor&, at::Tensor&> cholesky_ex_out(const at::Tensor& self, bool upper, bool check_errors,
                                                     at::Tensor& factor, at::Tensor& info) {
  check_out(factor, self);
  check_out(info, self);
  const auto [found, minors] = cholesky_ex(self, upper, check_errors);
  return {write_by_columns(factor, found), write_by_columns(info, minors)};
}

#if __has_include(<ATen/ops/cholesky.h>) // until torch 2.14
at::Tensor cholesky(const at::Tensor& self, bool upper) {
  if (!is_taken(self)) {
    return AtenKernel<at::_ops::cholesky>::call_boxed(self, upper);
  }
  at::native::squareCheckInputs(self, "cholesky");
  const auto [factor, info] = cholesky_ex(self, upper, /*check_errors=*/false);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}
#endif

at::Tensor solve_by_factor(const at::Tensor& self, const at::Tensor& factor, bool upper) {
  if (!are_taken(factor, self)) {
    return AtenKernel<at::_ops::_cholesky_solve_helper>::call_boxed(self, factor, upper);
  }
  const auto lower = upper ? factor.mT() : factor;
  const Triangle first{/*upper=*/false, /*unit=*/false, upper && factor.is_complex()};
  const Triangle second{/*upper=*/true, /*unit=*/false, !upper && factor.is_complex()};
  return solution(lower.mT(), solution(lower, self, first, /*left=*/true), second, /*left=*/true);
}

at::Tensor inverse_by_factor(const at::Tensor& self, bool upper) {
  if (!is_taken(self)) {
    return AtenKernel<at::_ops::cholesky_inverse>::call_boxed(self, upper);
  }
  at::native::squareCheckInputs(self, "cholesky_inverse");
  const auto is_zero = self.diagonal(0, -2, -1).eq(0);
  if (is_zero.numel() > 0) {
    const auto info = at::where(is_zero.any(-1), is_zero.to(at::kInt).argmax(-1) + 1, 0).to(at::kInt);
    at::_linalg_check_errors(info, "cholesky_inverse", self.dim() == 2);
  }
  const auto real = c10::toRealValueType(self.scalar_type());
  const auto eye = at::eye(self.size(-1), self.options().dtype(real)).to(self.scalar_type());
  // Not solved a second time: that brings infinities of both signs together where the product has none.
  const Triangle triangle{/*upper=*/false, /*unit=*/false, upper && self.is_complex()};
  const auto inverse = solution(upper ? self.mT() : self, eye.expand(self.sizes()), triangle, /*left=*/true);
  return at::matmul(inverse.mT(), inverse.conj()).mT();
}

at::Tensor& inverse_by_factor_out(const at::Tensor& self, bool upper, at::Tensor& out) {
  check_out(out, self);
  at::native::checkLinalgCompatibleDtype("cholesky_inverse", out, self);
  const auto inverse = inverse_by_factor(self, upper);
  const bool by_columns = out.numel() == 0 && out.scalar_type() == inverse.scalar_type(); // as PyTorch lays it out
  return by_columns ? write_by_columns(out, inverse) : convert_result(out, inverse);
}

constexpr auto solve_triangular_out = Into<solve_triangular, write_by_columns>::call;

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "linalg_solve_triangular", linalg_solve_triangular, solve_triangular);
  TB_COMPOSITION(m, "linalg_solve_triangular.out", linalg_solve_triangular_out, solve_triangular_out);
  TB_COMPOSITION(m, "triangular_solve", triangular_solve, solve_legacy);
  TB_COMPOSITION(m, "triangular_solve.X", triangular_solve_X, solve_legacy_out);
  TB_COMPOSITION(m, "linalg_cholesky_ex", linalg_cholesky_ex, cholesky_ex);
  TB_COMPOSITION(m, "linalg_cholesky_ex.L", linalg_cholesky_ex_L, cholesky_ex_out);
#if __has_include(<ATen/ops/cholesky.h>)
  TB_COMPOSITION(m, "cholesky", cholesky, cholesky);
  TB_COMPOSITION(m, "cholesky.out", cholesky_out, Into<cholesky>::call);
#endif
  TB_COMPOSITION(m, "_cholesky_solve_helper", _cholesky_solve_helper, solve_by_factor);
  TB_COMPOSITION(m, "cholesky_inverse", cholesky_inverse, inverse_by_factor);
  TB_COMPOSITION(m, "cholesky_inverse.out", cholesky_inverse_out, inverse_by_factor_out);
}

} // namespace torch_backend::compiled::solves
