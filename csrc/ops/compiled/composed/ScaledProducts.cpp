// Products of float8 matrices with scales, where the host cannot reach the memory.

#include <utility>

#include <ATen/ATen.h>
#include <ATen/BlasBackend.h>

#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/families/Matmul.h"

namespace torch_backend::compiled::scaled_products {
namespace {

bool is_taken(c10::ScalarType type) {
  return c10::isFloat8Type(type) && type != c10::ScalarType::Float8_e8m0fnu;
}

void check_matrices(const char* name, const at::Tensor& left, const at::Tensor& right) {
  TORCH_CHECK(left.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(right.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(left.size(1) == right.size(0), "mat1 and mat2 shapes cannot be multiplied (", left.size(0), "x",
              left.size(1), " and ", right.size(0), "x", right.size(1), ")");
  for (const auto* side : {&left, &right}) {
    TORCH_CHECK_VALUE(is_taken(side->scalar_type()), name, ": a matrix is of ", side->scalar_type(),
                      "; both must be of float8");
  }
}

/// One scale, or one for each of `count` rows or columns, which are counted along `dim`.
void check_scale(const char* name, const at::Tensor& scale, int64_t dim, int64_t count) {
  const bool is_along = scale.dim() == 2 && scale.size(dim) == count && scale.size(1 - dim) == 1;
  TORCH_CHECK_VALUE(at::isFloatingType(scale.scalar_type()) && (scale.numel() == 1 || is_along), "_scaled_mm: ", name,
                    " is of ", scale.scalar_type(), " and size ", scale.sizes(),
                    "; it must hold one floating-point number, or be of size ",
                    dim == 0 ? at::IntArrayRef({count, 1}) : at::IntArrayRef({1, count}), ", one for each ",
                    dim == 0 ? "row of the result" : "column of it");
}

/// What is left out may be undefined, too.
at::Tensor given(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

at::Tensor one_number(const at::Tensor& scale) {
  return scale.numel() == 1 ? scale.reshape({}) : scale;
}

at::Tensor scaled_mm(const at::Tensor& left, const at::Tensor& right, const at::Tensor& scale_left,
                     const at::Tensor& scale_right, const std::optional<at::Tensor>& bias,
                     const std::optional<at::Tensor>& scale_result, std::optional<at::ScalarType> out_dtype,
                     bool /*use_fast_accum*/) {
  check_matrices("_scaled_mm", left, right);
  const auto rows = left.size(0), columns = right.size(1);
  const auto result_type = out_dtype.value_or(left.scalar_type());
  TORCH_CHECK(at::isFloatingType(result_type), "_scaled_mm: out_dtype is ", result_type,
              "; it must be a floating-point dtype");
  check_scale("scale_a", scale_left, 0, rows);
  check_scale("scale_b", scale_right, 1, columns);
  matmul::Call call;
  const bool is_computed = result_type != at::kDouble; // in float32
  call.out = at::empty({rows, columns}, left.options().dtype(is_computed ? result_type : at::kFloat));
  call.left = left;
  call.right = right;
  call.factors = {one_number(scale_left), one_number(scale_right)};
  if (call.self = given(bias); call.self.defined()) {
    TORCH_CHECK(call.self.numel() == columns, "Bias must be size ", columns, " but got ", call.self.numel());
    call.self = call.self.reshape({columns});
  }
  if (call.divisor = given(scale_result); call.divisor.defined()) {
    TORCH_CHECK(call.divisor.numel() == 1 && call.divisor.scalar_type() == at::kFloat,
                "scale_result must be a float scalar");
    call.divisor = c10::isFloat8Type(result_type) ? call.divisor : at::Tensor();
  }
  matmul::multiply("aten::_scaled_mm", call);
  return is_computed ? call.out : call.out.to(result_type);
}

at::Tensor& scaled_mm_out(const at::Tensor& left, const at::Tensor& right, const at::Tensor& scale_left,
                          const at::Tensor& scale_right, const std::optional<at::Tensor>& bias,
                          const std::optional<at::Tensor>& scale_result, std::optional<at::ScalarType> out_dtype,
                          bool use_fast_accum, at::Tensor& out) {
  TORCH_CHECK(!out_dtype || *out_dtype == out.scalar_type(), "out_dtype must match output matrix type");
  check_out(out, left, right, scale_left, scale_right);
  return write_result(
      out, scaled_mm(left, right, scale_left, scale_right, bias, scale_result, out.scalar_type(), use_fast_accum));
}

/// The one scale of a side, and its recipe, as PyTorch's kernel for the CPU takes them.
template <class List>
std::pair<at::Tensor, at::blas::ScalingType> only_scale(const char* name, const List& scales, at::IntArrayRef recipes,
                                                        at::IntArrayRef swizzles) {
  using at::blas::ScalingType;
  const bool is_one = scales.size() == 1 && recipes.size() == 1;
  const auto recipe = is_one ? static_cast<ScalingType>(recipes[0]) : ScalingType::BlockWise128x128;
  TORCH_CHECK_VALUE(recipe == ScalingType::TensorWise || recipe == ScalingType::RowWise, "_scaled_mm_v2: ", name,
                    " has ", scales.size(), " scales of recipes ", recipes,
                    "; there must be one, TensorWise (0) or RowWise (1): scales of blocks are not supported");
  TORCH_CHECK_VALUE(
      swizzles.empty() || static_cast<at::blas::SwizzleType>(swizzles[0]) == at::blas::SwizzleType::NO_SWIZZLE,
      "_scaled_mm_v2: ", name, " is swizzled; it must lie as it is counted");
  return {*scales.begin(), recipe};
}

/// With either type of list that versions of PyTorch have.
template <class Schema>
struct ScaledV2;
template <class List>
struct ScaledV2<at::Tensor(const at::Tensor&, const at::Tensor&, List, at::IntArrayRef, at::IntArrayRef, List,
                           at::IntArrayRef, at::IntArrayRef, const std::optional<at::Tensor>&,
                           std::optional<at::ScalarType>, at::IntArrayRef, bool)> {
  static at::Tensor call(const at::Tensor& left, const at::Tensor& right, List scales_left,
                         at::IntArrayRef recipes_left, at::IntArrayRef swizzles_left, List scales_right,
                         at::IntArrayRef recipes_right, at::IntArrayRef swizzles_right,
                         const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out_dtype,
                         at::IntArrayRef contraction_dim, bool use_fast_accum) {
    check_matrices("_scaled_mm_v2", left, right);
    TORCH_CHECK_VALUE(contraction_dim.empty() || contraction_dim.equals({1, 0}), "_scaled_mm_v2: contraction_dim is ",
                      contraction_dim, "; it must be (1, 0)");
    const auto [scale_left, recipe_left] = only_scale("scale_a", scales_left, recipes_left, swizzles_left);
    auto [scale_right, recipe_right] = only_scale("scale_b", scales_right, recipes_right, swizzles_right);
    TORCH_CHECK_VALUE(recipe_left == recipe_right,
                      "_scaled_mm_v2: one side has a scale for each row, the other one for all");
    if (scale_right.numel() == right.size(1)) {
      scale_right = scale_right.reshape({1, right.size(1)});
    }
    return scaled_mm(left, right, scale_left, scale_right, bias, std::nullopt, out_dtype, use_fast_accum);
  }
  static at::Tensor& call_out(const at::Tensor& left, const at::Tensor& right, List scales_left,
                              at::IntArrayRef recipes_left, at::IntArrayRef swizzles_left, List scales_right,
                              at::IntArrayRef recipes_right, at::IntArrayRef swizzles_right,
                              const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out_dtype,
                              at::IntArrayRef contraction_dim, bool use_fast_accum, at::Tensor& out) {
    TORCH_CHECK_VALUE(!out_dtype || *out_dtype == out.scalar_type(), "out_dtype must match output matrix type");
    check_out(out, left, right);
    return write_result(out, call(left, right, scales_left, recipes_left, swizzles_left, scales_right, recipes_right,
                                  swizzles_right, bias, out.scalar_type(), contraction_dim, use_fast_accum));
  }
};
using V2 = ScaledV2<at::_ops::_scaled_mm_v2::schema>;

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "_scaled_mm", _scaled_mm, scaled_mm);
  TB_COMPOSITION(m, "_scaled_mm.out", _scaled_mm_out, scaled_mm_out);
  TB_COMPOSITION(m, "_scaled_mm_v2", _scaled_mm_v2, V2::call);
  TB_COMPOSITION(m, "_scaled_mm_v2.out", _scaled_mm_v2_out, V2::call_out);
}

} // namespace torch_backend::compiled::scaled_products
