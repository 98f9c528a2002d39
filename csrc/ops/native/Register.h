// Operators that we write ourselves: what is about memory and shapes, and what PyTorch has no CPU kernel for.
#pragma once

#include <torch/library.h>

namespace torch_backend {

class Registrar;

/// All of them, for the PrivateUse1 library.
void register_native_kernels(Registrar& m);
/// For the AutocastPrivateUse1 library.
void register_autocast(torch::Library& m);

/// One group of registrations per file.
void register_factories(Registrar& m);
void register_views(Registrar& m);
void register_resize(Registrar& m);
void register_fill(Registrar& m);
void register_copy(Registrar& m);
void register_clone(Registrar& m);
void register_convolution(Registrar& m);
void register_recurrent(Registrar& m);
void register_recurrent_layers(Registrar& m);
void register_matmul(Registrar& m);
void register_activation(Registrar& m);
void register_attention(Registrar& m);
void register_varlen_attention(Registrar& m);
void register_random(Registrar& m);
void register_batch_norm(Registrar& m);
void register_embedding_bag(Registrar& m);
void register_histogram(Registrar& m);
void register_wide_kernels(Registrar& m);
void register_stub_kernels(Registrar& m);
void register_tensor_methods(Registrar& m);

/// For the dispatch key of quantized tensors, before those of the host.
void register_quantized_copy();

} // namespace torch_backend
