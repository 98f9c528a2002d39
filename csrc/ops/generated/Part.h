// What kernels that treat some dimensions apart from others are told of them.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>

#include <c10/util/ArrayRef.h>

#include "csrc/ops/generated/Geometry.h"
#include "csrc/ops/generated/Launch.h"
#include "csrc/ops/generated/View.h"
#include "torch_backend/device.h"

namespace torch_backend::generated {

/// Some of the dimensions of all operands of a kernel, collapsed apart from its others.
struct Part {
  static constexpr int kMaxOperands = 8;

  std::array<Dims, kMaxOperands> strides;
  Dims sizes;
  Geometry geometry;

  /// `order` is in which operands decide how dimensions are ordered; empty: they stay as they are.
  bool collapse(int num_operands, c10::ArrayRef<int> order) {
    std::array<tb_tensor, kMaxOperands> tensors;
    std::array<const tb_tensor*, kMaxOperands> pointers{};
    for (int i = 0; i < num_operands; ++i) {
      const auto n = static_cast<std::size_t>(order.empty() ? i : order[static_cast<std::size_t>(i)]);
      tensors[n] = {nullptr, {}, static_cast<int32_t>(sizes.size()), {}, sizes.data(), strides[n].data(), 0};
      pointers[static_cast<std::size_t>(i)] = &tensors[n];
    }
    if (!geometry.of(pointers.data(), num_operands, /*reorder=*/!order.empty())) {
      return false;
    }
    if (!order.empty()) {
      auto sorted = geometry.strides;
      for (int i = 0; i < num_operands; ++i) {
        sorted[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] =
            geometry.strides[static_cast<std::size_t>(i)];
      }
      geometry.strides = sorted;
    }
    return true;
  }
  int rank_class() const {
    return geometry.rank <= 2 ? geometry.rank : geometry.rank <= 4 ? 4 : Geometry::kMaxRank;
  }
  int64_t inner_size() const {
    return geometry.sizes[static_cast<std::size_t>(geometry.rank - 1)];
  }
  int64_t inner_stride(int operand) const {
    return geometry.strides[static_cast<std::size_t>(operand)][static_cast<std::size_t>(geometry.rank - 1)];
  }
  int64_t reach(int operand) const {
    int64_t last = 0;
    for (int d = 0; d < geometry.rank; ++d) {
      last += (geometry.sizes[static_cast<std::size_t>(d)] - 1) *
              std::llabs(geometry.strides[static_cast<std::size_t>(operand)][static_cast<std::size_t>(d)]);
    }
    return last;
  }
};

/// The struct Args of a skeleton, whose fields are eight bytes each.
class ArgsStruct {
 public:
  void add(int64_t value) {
    words_[size_++] = value;
  }
  void add_padded(c10::ArrayRef<int64_t> values, int rank, int rank_class, int64_t padding) {
    for (int d = 0; d < rank_class; ++d) {
      add(d < rank_class - rank ? padding : values[static_cast<std::size_t>(d - (rank_class - rank))]);
    }
  }
  void add_dims(const Part& part, int num_operands) {
    const int rank = part.geometry.rank;
    add_padded(part.geometry.sizes, rank, part.rank_class(), 1);
    for (int n = 0; n < num_operands; ++n) {
      add_padded(part.geometry.strides[static_cast<std::size_t>(n)], rank, part.rank_class(), 0);
    }
  }
  void add_number(double value, ValueType compute) {
    union {
      float f32;
      double f64;
      int64_t i64;
    } number{};
    if (!is_floating(compute)) {
      number.i64 = static_cast<int64_t>(value);
    } else if (compute == ValueType::f64) {
      number.f64 = value;
    } else {
      number.f32 = static_cast<float>(value);
    }
    add(number.i64);
  }
  void pass(Launch& launch) const {
    launch.value(words_.data(), size_ * sizeof(int64_t));
  }

 private:
  std::size_t size_ = 0;
  std::array<int64_t, 12 + 2 * Geometry::kMaxRank * (1 + Part::kMaxOperands)> words_;
};

} // namespace torch_backend::generated
