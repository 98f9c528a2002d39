#include "csrc/ops/host/layouts/Quantized.h"

#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include "csrc/ops/host/layouts/Layout.h"

namespace torch_backend {
namespace {

/// A plain tensor on `quantized`'s storage, without elements yet.
at::Tensor plain_on_storage(const at::Tensor& quantized, c10::ScalarType dtype) {
  const auto* impl = quantized.unsafeGetTensorImpl();
  return at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(impl->unsafe_storage()),
                                                  detail::key_beside(quantized, c10::DispatchKey::Dense),
                                                  c10::scalarTypeToTypeMeta(dtype));
}

at::Tensor storage_bytes(const at::Tensor& quantized) {
  at::Tensor bytes = plain_on_storage(quantized, c10::kByte);
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous(
      {static_cast<int64_t>(quantized.unsafeGetTensorImpl()->unsafe_storage().nbytes())});
  return bytes;
}

/// Null for quantizers that are the same for all channels.
const at::PerChannelAffineQuantizer* per_channel(const at::QuantizerPtr& quantizer) {
  return dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
}

at::QuantizerPtr with_tensors(const at::QuantizerPtr& quantizer, const at::Tensor& scales,
                              const at::Tensor& zero_points) {
  const auto* from = per_channel(quantizer);
  if (from->qscheme() == at::kPerChannelAffineFloatQParams) {
    return c10::make_intrusive<at::PerChannelAffineFloatQParamsQuantizer>(from->scalar_type(), scales, zero_points,
                                                                          from->axis());
  }
  return c10::make_intrusive<at::PerChannelAffineQuantizer>(from->scalar_type(), scales, zero_points, from->axis());
}

class Quantized final : public Layout {
 public:
  const char* name() const override {
    return "quantized";
  }

  std::vector<at::Tensor> parts(const at::Tensor& tensor) const override {
    std::vector<at::Tensor> parts{storage_bytes(tensor)};
    // tensor.copy_(other) leaves other's quantizer behind, whose tensors may be elsewhere.
    const auto* quantizer = per_channel(at::get_qtensorimpl(tensor)->quantizer());
    if (quantizer != nullptr && quantizer->scales().device() == tensor.device()) {
      parts.push_back(quantizer->scales());
      parts.push_back(quantizer->zero_points());
    }
    return parts;
  }

  at::Tensor assemble(const at::Tensor& model, const std::vector<at::Tensor>& parts) const override {
    at::Tensor tensor = at::detail::make_tensor<at::QTensorImpl>(
        c10::Storage(parts[0].storage()), detail::key_beside(parts[0], c10::DispatchKey::Quantized), model.dtype(),
        at::get_qtensorimpl(model)->quantizer());
    update(tensor, model, parts);
    return tensor;
  }

  void update(const at::Tensor& tensor, const at::Tensor& model, const std::vector<at::Tensor>& parts) const override {
    auto* to = at::get_qtensorimpl(tensor);
    if (!tensor.storage().is_alias_of(parts[0].storage())) {
      to->set_storage_keep_dtype(c10::Storage(parts[0].storage()));
    }
    to->set_sizes_and_strides(model.sizes(), model.strides(), model.storage_offset());
    auto quantizer = at::get_qtensorimpl(model)->quantizer();
    to->set_quantizer_(parts.size() > 1 ? with_tensors(quantizer, parts[1], parts[2]) : quantizer);
  }

  bool parts_are_storages() const override {
    return true;
  }
};

} // namespace

const Layout& quantized_layout() {
  static const Quantized layout;
  return layout;
}

at::Tensor integers_of(const at::Tensor& quantized) {
  const auto dtype = quantized.scalar_type();
  if (dtype == c10::kQUInt4x2 || dtype == c10::kQUInt2x4) {
    return storage_bytes(quantized);
  }
  at::Tensor integers = plain_on_storage(quantized, c10::toUnderlying(dtype));
  integers.unsafeGetTensorImpl()->set_sizes_and_strides(quantized.sizes(), quantized.strides(),
                                                        quantized.storage_offset());
  return integers;
}

} // namespace torch_backend
