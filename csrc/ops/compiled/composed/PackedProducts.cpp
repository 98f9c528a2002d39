// Products with weights of four bits, which lie as CUDA's kernels have them.

#include <ATen/ATen.h>

#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/families/Matmul.h"

namespace torch_backend::compiled::packed_products {
namespace {

constexpr int64_t kColumns = 8, kDepth = 16, kLanes = 32; // of a tile, and what has a word of each

void check_tiles(const char* name, int64_t tiles, int64_t depth) {
  TORCH_CHECK(tiles == 2 || tiles == 4 || tiles == 8, name, ": there are ", tiles,
              " inner tiles; there must be 2, 4 or 8");
  TORCH_CHECK(depth % (tiles * kDepth) == 0, name, ": a row has ", depth, " elements, which is no multiple of ",
              tiles * kDepth, " (", tiles, " inner tiles)");
}

/// Bytes of two numbers, the first one in the upper half, to words of eight, whose upper and lower halves have the second and
/// the first of four bytes.
at::Tensor pack(const at::Tensor& self, int64_t inner_tiles) {
  constexpr auto kName = "_convert_weight_to_int4pack";
  TORCH_CHECK(self.dim() == 2 && self.scalar_type() == at::kByte, kName, ": the weight is of ", self.scalar_type(),
              " and size ", self.sizes(), "; it must be a matrix of uint8, with two numbers in each");
  TORCH_CHECK(self.size(0) % kColumns == 0, kName, ": the weight has ", self.size(0), " rows, which is no multiple of ",
              kColumns);
  const int64_t pairs = inner_tiles / 2, rows = self.size(0) / kColumns;
  check_tiles(kName, inner_tiles, 2 * self.size(1));
  const int64_t outer = self.size(1) / (pairs * kDepth);
  // [rows, outer, 8, 4, pairs, 4]
  const auto bytes = self.reshape({rows, kColumns, outer, pairs, 4, 4}).permute({0, 2, 1, 5, 3, 4});
  const auto both = [&](int64_t at, bool upper) {
    const auto first = bytes.select(-1, at), second = bytes.select(-1, at + 1);
    return upper ? first.bitwise_right_shift(4).bitwise_or_(second.bitwise_and(0xf0))
                 : first.bitwise_and(0x0f).bitwise_or_(second.bitwise_left_shift(4));
  };
  const auto words = at::stack({both(0, true), both(2, true), both(0, false), both(2, false)}, -1);
  return words.view(at::kInt).view({rows, outer, kLanes, pairs});
}

at::Tensor multiply(const at::Tensor& self, const at::Tensor& mat2, int64_t group_size, const at::Tensor& scales) {
  constexpr auto kName = "_weight_int4pack_mm";
  const auto type = self.scalar_type();
  TORCH_CHECK(self.dim() == 2 && (type == at::kFloat || type == at::kHalf || type == at::kBFloat16), kName,
              ": the input is of ", type, " and size ", self.sizes(),
              "; it must be a matrix of float32, float16 or bfloat16");
  const int64_t depth = self.size(1);
  TORCH_CHECK(mat2.dim() == 4 && mat2.scalar_type() == at::kInt && mat2.size(2) == kLanes, kName, ": the weight is of ",
              mat2.scalar_type(), " and size ", mat2.sizes(), "; it must come from _convert_weight_to_int4pack");
  const int64_t tiles = 2 * mat2.size(3), columns = mat2.size(0) * kColumns;
  check_tiles(kName, tiles, depth);
  TORCH_CHECK(mat2.size(1) * tiles * kDepth == depth, kName, ": the input has rows of ", depth,
              " elements, and the weight of ", mat2.size(1) * tiles * kDepth);
  TORCH_CHECK(group_size == 32 || group_size == 64 || group_size == 128 || group_size == 256, kName, ": groups are of ",
              group_size, " elements; they must be of 32, 64, 128 or 256");
  TORCH_CHECK(depth % group_size == 0, kName, ": rows have ", depth, " elements, which is no multiple of a group's ",
              group_size);
  TORCH_CHECK(scales.scalar_type() == type && scales.sizes().equals({depth / group_size, columns, 2}), kName,
              ": scales and zeros are of ", scales.scalar_type(), " and size ", scales.sizes(), "; they must be of ",
              type, " and size ", at::IntArrayRef({depth / group_size, columns, 2}));
  matmul::Call call;
  call.out = at::empty({self.size(0), columns}, self.options());
  call.left = self;
  call.right = mat2.contiguous();
  call.factors[0] = scales;
  call.int4_tiles = tiles;
  call.group_size = group_size;
  matmul::multiply("aten::_weight_int4pack_mm", call);
  return call.out;
}

} // namespace

void add(Registrar& m) {
  m.impl("_convert_weight_to_int4pack", TORCH_FN(pack), Source::kGenerated);
  m.impl("_weight_int4pack_mm", TORCH_FN(multiply), Source::kGenerated);
}

} // namespace torch_backend::compiled::packed_products
