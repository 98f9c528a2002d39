// What codegen/ writes for the installed torch.
#pragma once

namespace torch_backend {

class Registrar;

/// What the plugin has a kernel for goes before its other kernels, all else after them (Note [Whose kernel wins]).
enum class StructuredPass { kPlugin, kAten };
/// ATen's structured operators.
void register_structured_kernels(Registrar& m, StructuredPass pass);
/// Typed kernels for what codegen/operators.yaml lists as such.
void register_typed_kernels(Registrar& m);

} // namespace torch_backend
