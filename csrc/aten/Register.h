// All operator registrations of the active device.
#pragma once

#include <torch/library.h>

namespace torch_backend {

/// Register every operator below with the dispatcher. Once, from activate.
void register_operators();

/// One group of registrations per file, each for the PrivateUse1 library it is given.
void register_factories(torch::Library& m);
void register_views(torch::Library& m);
void register_resize(torch::Library& m);
void register_fill(torch::Library& m);
void register_copy(torch::Library& m);
void register_convolution(torch::Library& m);
void register_recurrent(torch::Library& m);
void register_matmul(torch::Library& m);
void register_attention(torch::Library& m);
void register_random(torch::Library& m);
void register_batch_norm(torch::Library& m);
void register_stub_kernels(torch::Library& m);
void register_tensor_methods(torch::Library& m);
/// Generated: typed kernels for codegen/hot_ops.txt.
void register_typed_kernels(torch::Library& m);
/// For the AutocastPrivateUse1 library.
void register_autocast(torch::Library& m);

} // namespace torch_backend
