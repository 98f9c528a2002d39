// Contiguous tensors on the device that take the places of a collective's tensors.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch_backend {

/// A staged tensor is one-dimensional, and an alias where the tensor's memory will do. All work is enqueued on the current
/// stream.
class Staging {
 public:
  /// A tensor whose values are moved as they are.
  at::Tensor read(const at::Tensor& tensor);
  at::Tensor write(const at::Tensor& tensor);
  /// A tensor that is changed in place.
  at::Tensor update(const at::Tensor& tensor);
  std::vector<at::Tensor> read(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> write(const std::vector<at::Tensor>& tensors);
  /// One tensor for all of a list, part after part.
  at::Tensor read_joined(const std::vector<at::Tensor>& tensors);
  at::Tensor write_joined(const std::vector<at::Tensor>& tensors);

  /// Bring what was written to where it belongs, once the collective is enqueued.
  void deliver();

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_; // destination, and what is staged for it
};

/// How values are reduced: complex numbers as pairs, a bool as a byte. An alias.
at::Tensor as_reduced(const at::Tensor& staged);

} // namespace torch_backend
