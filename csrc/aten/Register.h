// All operator registrations of the active device.
#pragma once

#include <torch/library.h>

namespace torch_backend {

class Registrar;

/// Register every operator below with the dispatcher. Once, from activate.
void register_operators();

/// One group of registrations per file, each for the PrivateUse1 library it is given.
void register_factories(Registrar& m);
void register_views(Registrar& m);
void register_resize(Registrar& m);
void register_fill(Registrar& m);
void register_copy(Registrar& m);
void register_convolution(Registrar& m);
void register_recurrent(Registrar& m);
void register_recurrent_layers(Registrar& m);
void register_matmul(Registrar& m);
void register_activation(Registrar& m);
void register_attention(Registrar& m);
void register_random(Registrar& m);
void register_batch_norm(Registrar& m);
void register_stub_kernels(Registrar& m);
void register_tensor_methods(Registrar& m);
/// What the plugin has a kernel for goes before its other kernels, all else after them (Note [Whose kernel wins]).
enum class StructuredPass { kPlugin, kAten };
/// Generated: structured operators.
void register_structured_kernels(Registrar& m, StructuredPass pass);
/// Generated: typed kernels for codegen/hot_ops.txt.
void register_typed_kernels(Registrar& m);
/// For tensors that are not strided, under the dispatch keys of their layouts.
void register_layouts();
/// For kernels that ask for a stub of the device.
void register_sparse_stubs();
/// For the AutocastPrivateUse1 library.
void register_autocast(torch::Library& m);

} // namespace torch_backend
