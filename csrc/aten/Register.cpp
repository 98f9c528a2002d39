#include "csrc/aten/Register.h"

#include "csrc/aten/Fallback.h"
#include "csrc/aten/Registrar.h"
#include "csrc/kernels/RegisterPluginKernels.h"

namespace torch_backend {

void register_operators() {
  Registrar m(c10::DispatchKey::PrivateUse1);
  register_structured_kernels(m, StructuredPass::kPlugin);
  register_plugin_kernels();
  register_factories(m);
  register_views(m);
  register_resize(m);
  register_fill(m);
  register_copy(m);
  register_convolution(m);
  register_recurrent(m);
  register_recurrent_layers(m);
  register_matmul(m);
  register_activation(m);
  register_attention(m);
  register_random(m);
  register_batch_norm(m);
  register_stub_kernels(m);
  register_tensor_methods(m);
  register_structured_kernels(m, StructuredPass::kAten);
  register_typed_kernels(m);

  register_fallback(c10::DispatchKey::PrivateUse1, torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());

  register_layouts();
  register_sparse_stubs();

  // PyTorch resolves conj and neg bits by copying, which ends in _copy_from, which would resolve them again, for ever.
  for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    new_library("aten", key).impl("_copy_from", torch::CppFunction::makeFallthrough());
  }

  register_fallback(c10::DispatchKey::AutocastPrivateUse1, torch::CppFunction::makeFallthrough());
  register_autocast(new_library("aten", c10::DispatchKey::AutocastPrivateUse1));
}

} // namespace torch_backend
