// Matrix products: the floor for devices whose library has none.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

namespace torch_backend::compiled::matmul {

/// out = ((left @ right) * factors + self) / divisor, of any strides: [rows, columns] or [batch, rows, columns]. Both sides
/// are of `out`'s dtype, or of float8. What is undefined is left out; factors and self are broadcast.
struct Call {
  at::Tensor out, left, right;
  std::array<at::Tensor, 2> factors;
  at::Tensor self;
  at::Tensor divisor; // one number, float32
  /// Where groups end, int32 and contiguous: of the rows of `left` and `out`, which are matrices, while `right` has a batch for
  /// each, or of the depth, where `out` has. Rows of no group are 0.
  at::Tensor ends;
  /// Not 0: `right` is what _convert_weight_to_int4pack returns for so many inner tiles. The first factor, [depth /
  /// group_size, columns, 2], has each group's scale and what is added to the numbers of -8 to 7 times that.
  int64_t int4_tiles = 0, group_size = 0;
};

/// Enqueues it, for operator `name`.
void multiply(const char* name, const Call& call);

} // namespace torch_backend::compiled::matmul
