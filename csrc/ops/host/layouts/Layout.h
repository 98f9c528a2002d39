// Tensors that are not one strided block: what they are made of.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>

namespace torch_backend {

/// Note [Layouts as parts]
/// A sparse, nested or quantized tensor is a few strided tensors (its parts) and a description (sizes, nesting, scale,
/// ...) that lives on the host. So the same tensor on another device is the same description around other parts. All
/// that the core does with such tensors is written once in these terms.
class Layout {
 public:
  virtual ~Layout() = default;

  /// How messages call such tensors: "sparse".
  virtual const char* name() const = 0;

  /// Strided tensors on the tensor's memory, all on the tensor's device and without autograd.
  virtual std::vector<at::Tensor> parts(const at::Tensor& tensor) const = 0;

  /// A tensor described as `model` is, made of `parts`, which decide its device. They are what parts(model) returned, or
  /// the same somewhere else.
  virtual at::Tensor assemble(const at::Tensor& model, const std::vector<at::Tensor>& parts) const = 0;

  /// Make `tensor` what assemble(model, parts) returns.
  virtual void update(const at::Tensor& tensor, const at::Tensor& model,
                      const std::vector<at::Tensor>& parts) const = 0;

  /// Whether a part is a whole storage in one dimension, which has to follow when a kernel resizes the tensor.
  virtual bool parts_are_storages() const {
    return false;
  }
};

/// Sparse COO: indices, values.
const Layout& sparse_coo_layout();
/// CSR, CSC, BSR and BSC: compressed indices, plain indices, values.
const Layout& sparse_compressed_layout();
/// Nested tensors other than jagged ones, which are made in Python: the buffer. Sizes and offsets are always on the CPU.
const Layout& nested_layout();
/// Quantized: the storage, and scales and zero points per channel.
const Layout& quantized_layout();

/// The layout of a tensor that is neither a plain strided one nor undefined, else null.
const Layout* layout_of(const at::Tensor& tensor);

/// The dispatch keys under which PyTorch looks for kernels of the layouts, for tensors of the device.
constexpr c10::DispatchKey kLayoutKeys[] = {c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCsrPrivateUse1,
                                            c10::DispatchKey::NestedTensorPrivateUse1,
                                            c10::DispatchKey::QuantizedPrivateUse1};

/// The same key for CPU tensors.
constexpr c10::DispatchKey on_host(c10::DispatchKey key) {
  return c10::toRuntimePerBackendFunctionalityKey(c10::toFunctionalityKey(key), c10::BackendComponent::CPUBit);
}

/// How messages call tensors with CPU key `key`: "sparse"; empty for strided ones.
const char* layout_name(c10::DispatchKey key);

namespace detail {

/// The key of `functionality` for tensors on `part`'s device.
inline c10::DispatchKeySet key_beside(const at::Tensor& part, c10::DispatchKey functionality) {
  return c10::DispatchKeySet(c10::toRuntimePerBackendFunctionalityKey(
      functionality, part.unsafeGetTensorImpl()->key_set().highestBackendKey()));
}

} // namespace detail
} // namespace torch_backend
