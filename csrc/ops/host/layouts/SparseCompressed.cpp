// Sparse compressed tensors: CSR, CSC, BSR and BSC.

#include <ATen/SparseCsrTensorImpl.h>

#include "csrc/ops/host/layouts/Layout.h"

namespace torch_backend {
namespace {

at::SparseCsrTensorImpl* compressed_impl_of(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

class SparseCompressed final : public Layout {
 public:
  const char* name() const override {
    return "sparse compressed";
  }

  std::vector<at::Tensor> parts(const at::Tensor& tensor) const override {
    const auto* impl = compressed_impl_of(tensor);
    return {impl->compressed_indices(), impl->plain_indices(), impl->values()};
  }

  at::Tensor assemble(const at::Tensor& model, const std::vector<at::Tensor>& parts) const override {
    at::Tensor tensor = at::detail::make_tensor<at::SparseCsrTensorImpl>(
        detail::key_beside(parts[2], c10::DispatchKey::SparseCsr), parts[2].device(), model.layout(), model.dtype());
    update(tensor, model, parts);
    return tensor;
  }

  void update(const at::Tensor& tensor, const at::Tensor& model, const std::vector<at::Tensor>& parts) const override {
    const std::vector<int64_t> sizes = model.sizes().vec();
    compressed_impl_of(tensor)->set_member_tensors(parts[0], parts[1], parts[2], at::IntArrayRef(sizes));
  }
};

} // namespace

const Layout& sparse_compressed_layout() {
  static const SparseCompressed layout;
  return layout;
}

} // namespace torch_backend
