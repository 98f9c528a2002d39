// Sparse COO tensors.

#include <ATen/SparseTensorImpl.h>

#include "csrc/ops/host/layouts/Layout.h"

namespace torch_backend {
namespace {

at::SparseTensorImpl* coo_impl_of(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

class SparseCoo final : public Layout {
 public:
  const char* name() const override {
    return "sparse";
  }

  std::vector<at::Tensor> parts(const at::Tensor& tensor) const override {
    return {coo_impl_of(tensor)->indices(), coo_impl_of(tensor)->values()};
  }

  at::Tensor assemble(const at::Tensor& model, const std::vector<at::Tensor>& parts) const override {
    at::Tensor tensor = at::detail::make_tensor<at::SparseTensorImpl>(
        detail::key_beside(parts[1], c10::DispatchKey::Sparse), model.dtype());
    update(tensor, model, parts);
    return tensor;
  }

  void update(const at::Tensor& tensor, const at::Tensor& model, const std::vector<at::Tensor>& parts) const override {
    const auto* from = coo_impl_of(model);
    auto* to = coo_impl_of(tensor);
    const std::vector<int64_t> sizes = model.sizes().vec();
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), sizes);
    to->set_indices_and_values_unsafe(parts[0], parts[1]);
    to->set_coalesced(from->coalesced());
  }
};

} // namespace

const Layout& sparse_coo_layout() {
  static const SparseCoo layout;
  return layout;
}

} // namespace torch_backend
