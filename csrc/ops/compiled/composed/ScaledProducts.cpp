// Products of float8 matrices, made of others: where the host cannot reach the memory. They are converted to float32, which
// holds all of their values.

#include <ATen/ATen.h>

#include "csrc/ops/compiled/composed/Compositions.h"

namespace torch_backend::compiled::scaled_products {
namespace {

/// One scale, or one for each of `count` rows or columns, which are counted along `dim`.
void check_scale(const char* name, const at::Tensor& scale, int64_t dim, int64_t count) {
  const bool is_along = scale.dim() == 2 && scale.size(dim) == count && scale.size(1 - dim) == 1;
  TORCH_CHECK_VALUE(at::isFloatingType(scale.scalar_type()) && (scale.numel() == 1 || is_along), "_scaled_mm: ", name,
                    " is of ", scale.scalar_type(), " and size ", scale.sizes(),
                    "; it must hold one floating-point number, or be of size ",
                    dim == 0 ? at::IntArrayRef({count, 1}) : at::IntArrayRef({1, count}), ", one for each ",
                    dim == 0 ? "row of the result" : "column of it");
}

at::Tensor scaled_mm(const at::Tensor& left, const at::Tensor& right, const at::Tensor& scale_left,
                     const at::Tensor& scale_right, const std::optional<at::Tensor>& bias,
                     const std::optional<at::Tensor>& scale_result, std::optional<at::ScalarType> out_dtype,
                     bool /*use_fast_accum*/) {
  TORCH_CHECK(left.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(right.dim() == 2, "mat2 must be a matrix");
  const auto rows = left.size(0), columns = right.size(1);
  TORCH_CHECK(left.size(1) == right.size(0), "mat1 and mat2 shapes cannot be multiplied (", rows, "x", left.size(1),
              " and ", right.size(0), "x", columns, ")");
  for (const auto* side : {&left, &right}) {
    TORCH_CHECK_VALUE(c10::isFloat8Type(side->scalar_type()), "_scaled_mm: a matrix is of ", side->scalar_type(),
                      "; both must be of float8");
  }
  const auto result_type = out_dtype.value_or(left.scalar_type());
  TORCH_CHECK(at::isFloatingType(result_type), "_scaled_mm: out_dtype is ", result_type,
              "; it must be a floating-point dtype");
  check_scale("scale_a", scale_left, 0, rows);
  check_scale("scale_b", scale_right, 1, columns);
  auto product = at::mm(left.to(at::kFloat), right.to(at::kFloat));
  product.mul_(scale_left.numel() == 1 ? scale_left.reshape({}) : scale_left);
  product.mul_(scale_right.numel() == 1 ? scale_right.reshape({}) : scale_right);
  if (bias && bias->defined()) {
    TORCH_CHECK(bias->numel() == columns, "Bias must be size ", columns, " but got ", bias->numel());
    product.add_(bias->reshape({columns}));
  }
  if (scale_result && scale_result->defined() && c10::isFloat8Type(result_type)) {
    product.div_(scale_result->reshape({}));
  }
  return product.to(result_type);
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

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "_scaled_mm", _scaled_mm, scaled_mm);
  TB_COMPOSITION(m, "_scaled_mm.out", _scaled_mm_out, scaled_mm_out);
}

} // namespace torch_backend::compiled::scaled_products
