// Nested tensors.

#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/clone.h>

#include "csrc/ops/host/layouts/Layout.h"
#include "csrc/ops/tensor/Alias.h"

namespace torch_backend {
namespace {

/// A CPU kernel may have put these, too, into device memory (Note [Redirected CPU allocations]).
at::Tensor to_host_memory(const at::Tensor& metadata) {
  return metadata.defined() && metadata.numel() > 0 && is_device_memory(metadata) ? metadata.clone() : metadata;
}

class Nested final : public Layout {
 public:
  const char* name() const override {
    return "nested";
  }

  std::vector<at::Tensor> parts(const at::Tensor& tensor) const override {
    return {at::native::get_nested_tensor_impl(tensor)->get_unsafe_storage_as_tensor()};
  }

  at::Tensor assemble(const at::Tensor& model, const std::vector<at::Tensor>& parts) const override {
    const auto* from = at::native::get_nested_tensor_impl(model);
    return at::detail::make_tensor<at::native::NestedTensorImpl>(parts[0], to_host_memory(from->get_nested_sizes()),
                                                                 to_host_memory(from->get_nested_strides()),
                                                                 to_host_memory(from->get_storage_offsets()));
  }

  /// Nested tensors have fixed sizes: what a kernel writes, it writes to the buffer.
  void update(const at::Tensor& /*tensor*/, const at::Tensor& /*model*/,
              const std::vector<at::Tensor>& /*parts*/) const override {}

  bool parts_are_storages() const override {
    return true;
  }
};

} // namespace

const Layout& nested_layout() {
  static const Nested layout;
  return layout;
}

} // namespace torch_backend
