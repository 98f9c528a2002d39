// Products of groups of rows, or of the depth, that the device knows the ends of: where the host cannot reach the memory.

#include <ATen/ATen.h>
#include <ATen/native/GroupedMMUtils.h>

#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/families/Matmul.h"

namespace torch_backend::compiled::grouped_products {
namespace {

/// Raises as PyTorch does, but for strides: any will do.
void check(const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& offs,
           const std::optional<at::Tensor>& bias, c10::ScalarType result_type) {
  for (const auto& [name, side] : {std::pair<const char*, const at::Tensor&>{"mat_a", left}, {"mat_b", right}}) {
    const auto type = side.scalar_type();
    TORCH_CHECK(type == at::kBFloat16 || type == at::kFloat || type == at::kHalf, "Expected ", name,
                " to be Float32, BFloat16 or Float16 matrix, got ", type);
    TORCH_CHECK(side.dim() == 2 || side.dim() == 3, name, " has to be 2 or 3d");
  }
  TORCH_CHECK(left.scalar_type() == right.scalar_type(),
              "expected mat_a and mat_b to have the same dtype, but got: ", left.scalar_type(),
              " != ", right.scalar_type());
  TORCH_CHECK(left.size(-1) == right.size(-2), "contraction dimension of mat_a and mat_b must match");
  TORCH_CHECK(offs.has_value() == (left.dim() == 2 || right.dim() == 2),
              "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d");
  if (offs.has_value()) {
    TORCH_CHECK(offs->dim() == 1, "offs has to be 1D");
    TORCH_CHECK(offs->scalar_type() == at::kInt, "Offsets have to be int32");
  }
  TORCH_CHECK(!bias.has_value(), "Bias not supported yet");
  TORCH_CHECK(result_type == left.scalar_type(), "Grouped gemm output dtype must match `mat_a` dtype");
}

at::Tensor grouped_mm(const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& offs,
                      const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out_dtype) {
  const auto result_type = out_dtype.value_or(left.scalar_type());
  check(left, right, offs, bias, result_type);
  const auto out = at::native::create_grouped_gemm_output_tensor(left, right, offs, result_type);
  matmul::Call call;
  const bool of_columns = left.dim() == 3 && right.dim() == 2; // the rows of the transposed product
  call.out = of_columns ? out.mT() : out;
  call.left = of_columns ? right.mT() : left;
  call.right = of_columns ? left.mT() : right;
  if (offs.has_value()) {
    call.ends = offs->to(left.device()).contiguous();
  }
  matmul::multiply("aten::_grouped_mm", call);
  return out;
}

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "_grouped_mm", _grouped_mm, grouped_mm);
}

} // namespace torch_backend::compiled::grouped_products
