#include "csrc/ops/host/layouts/Layout.h"

namespace torch_backend {
namespace {

constexpr c10::DispatchKeySet kFunctionalities{c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                               c10::DispatchKey::NestedTensor, c10::DispatchKey::Quantized};

} // namespace

const Layout* layout_of(const at::Tensor& tensor) {
  const auto keys = tensor.unsafeGetTensorImpl()->key_set();
  // Jagged tensors have the key too, but are Python subclasses: they never get here as they are.
  if (C10_LIKELY((keys & kFunctionalities).empty())) {
    return nullptr;
  }
  return keys.has(c10::DispatchKey::Sparse)         ? &sparse_coo_layout()
         : keys.has(c10::DispatchKey::SparseCsr)    ? &sparse_compressed_layout()
         : keys.has(c10::DispatchKey::NestedTensor) ? &nested_layout()
                                                    : &quantized_layout();
}

const char* layout_name(c10::DispatchKey key) {
  switch (key) {
    case c10::DispatchKey::SparseCPU:
      return sparse_coo_layout().name();
    case c10::DispatchKey::SparseCsrCPU:
      return sparse_compressed_layout().name();
    case c10::DispatchKey::NestedTensorCPU:
      return nested_layout().name();
    case c10::DispatchKey::QuantizedCPU:
      return quantized_layout().name();
    default:
      return "";
  }
}

} // namespace torch_backend
