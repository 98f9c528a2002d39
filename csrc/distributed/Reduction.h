// Reduction operators that a communicator does not know, from those it does.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace torch_backend {

/// The dtype that PyTorch computes `type` in: itself, or one that holds all its values and rounds or wraps as it does when
/// the result is converted back.
c10::ScalarType computed_as(c10::ScalarType type);

/// One reduction over `num_ranks` ranks of tensors of `type`: AVG is a sum that is divided (integers towards zero),
/// PREMUL_SUM a sum of values that are multiplied first, and a bool is a number that is 0 or 1.
class Reduction {
 public:
  /// Throws ValueError, naming both, if the operator has no meaning for the dtype. Reads a factor that is a tensor.
  Reduction(const char* what, const c10d::ReduceOp& op, c10::ScalarType type, int num_ranks);

  /// What the communicator does.
  const c10d::ReduceOp& op() const {
    return op_;
  }
  /// Whether the inputs are changed first.
  bool multiplies() const {
    return factor_.has_value();
  }
  void multiply(const std::vector<at::Tensor>& inputs) const;
  bool divides() const {
    return divides_;
  }
  void divide(const std::vector<at::Tensor>& outputs) const;
  /// out = parts[0] op parts[1] op ..., `parts` being contiguous.
  void combine(const at::Tensor& parts, const at::Tensor& out) const;

 private:
  c10d::ReduceOp op_;
  std::optional<double> factor_;
  bool divides_ = false;
  int num_ranks_;
};

} // namespace torch_backend
