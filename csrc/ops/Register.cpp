#include "csrc/ops/Register.h"

#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/dispatch/CodegenKernels.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/host/Fallback.h"
#include "csrc/ops/host/layouts/Register.h"
#include "csrc/ops/kernel/RegisterKernels.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {

void register_operators() {
  Registrar m(c10::DispatchKey::PrivateUse1);
  set_last_source(c10::KernelFunction::makeFromBoxedFunction<&cpu_fallback>());
  register_structured_kernels(m, StructuredPass::kPlugin);
  register_kernels();
  compiled::add_compositions(m);
  register_native_kernels(m);
  register_structured_kernels(m, StructuredPass::kAten);
  register_typed_kernels(m);

  register_fallback(c10::DispatchKey::PrivateUse1, torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());

  register_quantized_copy();
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
