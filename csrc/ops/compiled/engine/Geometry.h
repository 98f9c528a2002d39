// Several tensors of one shape, with dimensions that all of them can take as one put together.
#pragma once

#include <array>
#include <cstdint>

#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// The dimensions in the order that suits the first operand: the last one is that of its smallest stride. Strides are in
/// elements of each operand.
struct Geometry {
  static constexpr int kMaxOperands = 12;
  static constexpr int kMaxRank = 8;
  /// Offsets below it fit into 32 bits, with what a loop's end adds to them.
  static constexpr int64_t kLimit32 = (int64_t{1} << 31) - (int64_t{1} << 20);

  /// Operands have the shape of the first one. False: more dimensions than kMaxRank remain, or too many operands. Without
  /// `reorder` the dimensions stay in their order.
  bool of(const tb_tensor* const* tensors, int num_operands, bool reorder = true);

  /// Takes neighbouring elements for one, of those that are only moved: the first `moved` operands have them side by
  /// side, and the others the same place for all of them. As many as 16 bytes hold and sizes, strides and addresses allow;
  /// `also` has the bits of what else has to be a multiple, in bytes. Returns the bytes of what an element is then, which
  /// strides of these operands count in. For items side by side: what one item does in a row, compilers widen themselves.
  int widen(const tb_tensor* const* tensors, int moved, int element_bytes, uint64_t also = 0);

  /// Few texts for many ranks.
  int rank_class() const {
    return rank <= 4 ? rank : kMaxRank;
  }
  int64_t inner_stride(int operand) const {
    return strides[static_cast<std::size_t>(operand)][static_cast<std::size_t>(rank - 1)];
  }
  /// How far the last element is from the first one.
  int64_t reach(int operand) const;

  int operands;
  int rank; // at least 1
  int64_t count;
  std::array<int64_t, kMaxRank> sizes;
  std::array<std::array<int64_t, kMaxRank>, kMaxOperands> strides;
  bool fits_32; // every offset, and the count with what a loop's end adds to it
};

} // namespace torch_backend::compiled
