#include "csrc/ops/native/Register.h"

namespace torch_backend {

void register_native_kernels(Registrar& m) {
  register_factories(m);
  register_views(m);
  register_resize(m);
  register_fill(m);
  register_copy(m);
  register_clone(m);
  register_convolution(m);
  register_recurrent(m);
  register_recurrent_layers(m);
  register_matmul(m);
  register_activation(m);
  register_attention(m);
  register_varlen_attention(m);
  register_random(m);
  register_batch_norm(m);
  register_embedding_bag(m);
  register_histogram(m);
  register_wide_kernels(m);
  register_stub_kernels(m);
  register_tensor_methods(m);
}

} // namespace torch_backend
