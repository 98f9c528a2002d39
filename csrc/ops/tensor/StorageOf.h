// The one way to the memory of a tensor that a call brings along.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

namespace torch_backend {

/// Note [Tensors without a storage]
/// A device's extension may make tensors whose values PyTorch cannot reach (OpaqueTensorImpl, or a storage of nothing);
/// only kernels that the extension registers can read them. To everybody else they look like plain strided tensors. A
/// tensor whose storage was emptied (FSDP does that) looks the same. So whoever takes the storage of a tensor that it was
/// given takes it here, or has asked has_memory() and leaves the call to somebody who does.

namespace detail {
[[noreturn]] void throw_no_memory(const c10::TensorImpl& tensor, const char* op);
} // namespace detail

/// Whether all elements that `tensor` has lie in memory, or are zeros that need none.
inline bool has_memory(const c10::TensorImpl& tensor) {
  const auto* storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  return storage != nullptr &&
         (storage->data() != nullptr || tensor.numel() == 0 || tensor.key_set().has(c10::DispatchKey::ZeroTensor));
}
inline bool has_memory(const at::TensorBase& tensor) {
  return has_memory(*tensor.unsafeGetTensorImpl());
}

/// Throws NotImplementedError, or what PyTorch has said to whoever uses this tensor (one that a captured graph has
/// overwritten). `op` is what was asked for, e.g. "aten::mm".
inline void check_has_memory(const c10::TensorImpl& tensor, const char* op) {
  if (C10_UNLIKELY(!has_memory(tensor))) {
    detail::throw_no_memory(tensor, op);
  }
}

/// `tensor`'s storage. Throws NotImplementedError if it has none, or an empty one.
inline const c10::Storage& storage_of(const c10::TensorImpl& tensor, const char* op = "This") {
  check_has_memory(tensor, op);
  return tensor.unsafe_storage();
}
inline const c10::Storage& storage_of(const at::Tensor& tensor, const char* op = "This") {
  return storage_of(*tensor.unsafeGetTensorImpl(), op);
}

} // namespace torch_backend
