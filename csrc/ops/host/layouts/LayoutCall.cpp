#include "csrc/ops/host/layouts/LayoutCall.h"

#include <utility>

#include <ATen/ops/as_strided_native.h>

namespace torch_backend {
namespace {

bool on_device(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

/// Whether `part` is a view of `stand_in` that is the same view of `original`, but for the offsets' difference: where
/// the original is not dense, a stand-in that is a copy has other strides.
bool is_view_of(const at::Tensor& part, const at::Tensor& stand_in, const at::Tensor& original) {
  return part.storage().is_alias_of(stand_in.storage()) && part.scalar_type() == stand_in.scalar_type() &&
         stand_in.strides() == original.strides();
}

} // namespace

void LayoutCall::expect_write(const at::Tensor& tensor) {
  if (tensor.defined() && layout_of(tensor) != nullptr) {
    stand_in(tensor, /*written=*/true);
  }
}

at::Tensor LayoutCall::stand_in(const at::Tensor& tensor, bool written) {
  const auto* layout = tensor.defined() && on_device(tensor) ? layout_of(tensor) : nullptr;
  if (layout == nullptr) {
    return host_.stand_in(tensor, written);
  }
  for (const auto& argument : arguments_) {
    if (argument.original.is_same(tensor)) {
      return argument.stand_in;
    }
  }
  Argument argument{layout, tensor, at::Tensor(), layout->parts(tensor), {}, written};
  for (const auto& part : argument.original_parts) {
    argument.stand_in_parts.push_back(host_.stand_in(part, written));
  }
  argument.stand_in = layout->assemble(tensor, argument.stand_in_parts);
  arguments_.push_back(std::move(argument));
  return arguments_.back().stand_in;
}

void LayoutCall::leave() {
  for (auto& argument : arguments_) {
    if (argument.written && argument.layout->parts_are_storages()) {
      auto& part = argument.stand_in_parts[0];
      const auto bytes = static_cast<int64_t>(part.storage().nbytes());
      const auto size = bytes / static_cast<int64_t>(part.element_size());
      if (part.size(0) != size) {
        part.unsafeGetTensorImpl()->set_sizes_contiguous({size});
      }
    }
  }
  host_.leave();
  for (auto& argument : arguments_) {
    if (argument.written) {
      argument.layout->update(argument.original, argument.stand_in, bring(argument.layout->parts(argument.stand_in)));
    }
  }
}

at::Tensor LayoutCall::result(at::Tensor&& cpu) {
  if (!cpu.defined()) {
    return std::move(cpu);
  }
  for (const auto& argument : arguments_) {
    if (cpu.is_same(argument.stand_in)) {
      return argument.original;
    }
  }
  const auto* layout = layout_of(cpu);
  if (layout == nullptr) {
    return result_part(std::move(cpu));
  }
  return layout->assemble(cpu, bring(layout->parts(cpu)));
}

std::vector<at::Tensor> LayoutCall::bring(std::vector<at::Tensor>&& parts) {
  for (auto& part : parts) {
    part = result_part(std::move(part));
  }
  return std::move(parts);
}

at::Tensor LayoutCall::result_part(at::Tensor&& part) {
  if (auto found = part_of_argument(part)) {
    return *std::move(found);
  }
  return host_.result(std::move(part));
}

std::optional<at::Tensor> LayoutCall::part_of_argument(const at::Tensor& part) const {
  for (const auto& argument : arguments_) {
    for (std::size_t i = 0; i < argument.stand_in_parts.size(); ++i) {
      if (part.is_same(argument.stand_in_parts[i])) {
        return argument.original_parts[i];
      }
    }
  }
  // What shares memory with an argument on the CPU does so on the device, whether stand-ins alias or copy.
  for (const auto& argument : arguments_) {
    for (std::size_t i = 0; i < argument.stand_in_parts.size(); ++i) {
      const auto& stand_in = argument.stand_in_parts[i];
      const auto& original = argument.original_parts[i];
      if (is_view_of(part, stand_in, original)) {
        at::Tensor view = at::native::as_strided_tensorimpl(
            original, part.sizes(), part.strides(),
            part.storage_offset() - stand_in.storage_offset() + original.storage_offset());
        view._set_conj(part.is_conj());
        view._set_neg(part.is_neg());
        return view;
      }
    }
  }
  return std::nullopt;
}

} // namespace torch_backend
