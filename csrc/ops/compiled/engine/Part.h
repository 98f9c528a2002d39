// What kernels that treat some dimensions apart from others are told of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <c10/util/ArrayRef.h>

#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/View.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

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
  int64_t inner_size() const {
    return geometry.sizes[static_cast<std::size_t>(geometry.rank - 1)];
  }
  int64_t inner_stride(int operand) const {
    return geometry.inner_stride(operand);
  }
  int64_t reach(int operand) const {
    return geometry.reach(operand);
  }
};

/// The struct Args of a skeleton, whose fields are eight bytes each.
class ArgsStruct {
 public:
  void add(int64_t value) {
    words_[size_++] = value;
  }
  void add(c10::ArrayRef<int64_t> values) {
    std::copy(values.begin(), values.end(), words_.begin() + size_);
    size_ += values.size();
  }
  /// Sizes, and strides of each operand, padded to the rank class.
  void add_dims(const Geometry& geometry) {
    const auto rank = static_cast<std::size_t>(geometry.rank);
    const auto padding = static_cast<std::size_t>(geometry.rank_class()) - rank;
    const auto add_padded = [&](const auto& values, int64_t other) {
      std::fill_n(words_.begin() + size_, padding, other);
      std::copy_n(values.begin(), rank, words_.begin() + size_ + padding);
      size_ += padding + rank;
    };
    add_padded(geometry.sizes, 1);
    for (std::size_t n = 0; n < static_cast<std::size_t>(geometry.operands); ++n) {
      add_padded(geometry.strides[n], 0);
    }
  }
  void pass(Launch& launch) const {
    launch.value(words_.data(), size_ * sizeof(int64_t));
  }

 private:
  std::size_t size_ = 0;
  std::array<int64_t, 48 + 2 * Geometry::kMaxRank * (1 + Part::kMaxOperands)> words_;
};

} // namespace torch_backend::compiled
