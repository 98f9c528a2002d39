// The gradient of embedding_bag, dense or sparse: PyTorch's own function for it only calls other operators.

#include <ATen/core/Tensor.h>
#include <ATen/ops/_embedding_bag_backward_native.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {

void register_embedding_bag(Registrar& m) {
  m.impl("_embedding_bag_backward", TORCH_FN(at::native::_embedding_bag_backward_symint));
}

} // namespace torch_backend
