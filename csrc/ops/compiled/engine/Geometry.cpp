#include "csrc/ops/compiled/engine/Geometry.h"

#include <cstdlib>

namespace torch_backend::compiled {
namespace {

constexpr int kMaxDims = 64;

} // namespace

int64_t Geometry::reach(int operand) const {
  int64_t last = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d) {
    last += (sizes[d] - 1) * std::llabs(strides[static_cast<std::size_t>(operand)][d]);
  }
  return last;
}

int Geometry::widen(const tb_tensor* const* tensors, int moved, int element_bytes, uint64_t also) {
  constexpr uint64_t kWidest = 16;
  const auto inner = static_cast<std::size_t>(rank - 1);
  const auto bytes_of = [&](int64_t elements) {
    return static_cast<uint64_t>(elements) * static_cast<uint64_t>(element_bytes);
  };
  uint64_t bits = also | kWidest | bytes_of(sizes[inner]);
  for (int n = 0; n < operands; ++n) {
    const auto& own = strides[static_cast<std::size_t>(n)];
    if (own[inner] != (n < moved ? 1 : 0)) {
      return element_bytes;
    }
    if (n < moved) {
      bits |= reinterpret_cast<uintptr_t>(tensors[n]->data) + tensors[n]->byte_offset;
      for (std::size_t d = 0; d < inner; ++d) {
        bits |= bytes_of(own[d]);
      }
    }
  }
  const auto bytes = static_cast<int>(bits & (~bits + 1)); // the largest power of two that divides all
  if (bytes <= element_bytes) {
    return element_bytes;
  }
  const int together = bytes / element_bytes;
  sizes[inner] /= together;
  count /= together;
  for (int n = 0; n < moved; ++n) {
    for (std::size_t d = 0; d < inner; ++d) {
      strides[static_cast<std::size_t>(n)][d] /= together;
    }
  }
  return bytes;
}

bool Geometry::of(const tb_tensor* const* tensors, int num_operands, bool reorder) {
  const tb_tensor& first = *tensors[0];
  if (num_operands > kMaxOperands || first.ndim > kMaxDims) {
    return false;
  }
  operands = num_operands;
  count = 1;
  int dims[kMaxDims]; // from the outermost to the innermost, those of size 1 left out
  int num_dims = 0;
  for (int d = 0; d < first.ndim; ++d) {
    count *= first.shape[d];
    if (first.shape[d] == 1) {
      continue;
    }
    // Insertion by falling stride of the first operand that tells the two apart.
    int at = num_dims++;
    for (; reorder && at > 0; --at) {
      int order = 0;
      for (int n = 0; n < num_operands && order == 0; ++n) {
        const int64_t outer = std::llabs(tensors[n]->strides[dims[at - 1]]);
        const int64_t inner = std::llabs(tensors[n]->strides[d]);
        order = outer == 0 || inner == 0 || outer == inner ? 0 : outer < inner ? 1 : -1;
      }
      if (order <= 0) {
        break;
      }
      dims[at] = dims[at - 1];
    }
    dims[at] = d;
  }
  rank = 0;
  for (int i = 0; i < num_dims; ++i) {
    const int d = dims[i];
    const int64_t size = first.shape[d];
    bool joins = rank > 0;
    for (int n = 0; n < num_operands && joins; ++n) {
      joins = strides[n][rank - 1] == tensors[n]->strides[d] * size;
    }
    if (!joins) {
      if (rank == kMaxRank) {
        return false;
      }
      sizes[rank++] = 1;
    }
    sizes[rank - 1] *= size;
    for (int n = 0; n < num_operands; ++n) {
      strides[n][rank - 1] = tensors[n]->strides[d];
    }
  }
  if (rank == 0) {
    rank = 1;
    sizes[0] = 1;
    for (int n = 0; n < num_operands; ++n) {
      strides[n][0] = 1;
    }
  }
  fits_32 = count < kLimit32;
  for (int n = 0; n < num_operands && fits_32; ++n) {
    fits_32 = reach(n) < kLimit32;
  }
  return true;
}

} // namespace torch_backend::compiled
