// resize_ and set_.

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/native/Register.h"
#include "csrc/ops/tensor/Resize.h"

namespace torch_backend {
namespace {

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef symbolic_size,
                          std::optional<at::MemoryFormat> memory_format) {
  const auto old_bytes = static_cast<int64_t>(self.storage().nbytes());
  resize_tensor(self.unsafeGetTensorImpl(), C10_AS_INTARRAYREF_SLOW(symbolic_size));
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format ", *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  if (at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory()) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor& set_storage_strided_(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                                 c10::SymIntArrayRef stride) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto strides = C10_AS_INTARRAYREF_SLOW(stride);
  const auto storage_offset = offset.expect_int();
  at::native::checkSetStorage(self, source, storage_offset, sizes, strides);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(storage_offset);
  at::OptionalIntArrayRef optional_strides =
      strides.data() != nullptr ? at::OptionalIntArrayRef(strides) : std::nullopt;
  resize_tensor(impl, sizes, optional_strides);
  return self;
}

at::Tensor& set_storage_(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_strided_(self, std::move(source), 0, {c10::SymInt(elements)}, {});
}

at::Tensor& set_tensor_(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) {
    return self;
  }
  return set_storage_strided_(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(),
                              source.sym_strides());
}

at::Tensor& set_empty_(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, &device_allocator(), /*resizable=*/true);
  return set_storage_strided_(self, std::move(storage), 0, {c10::SymInt(0)}, {});
}

} // namespace

void register_resize(Registrar& m) {
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_strided_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor_));
  m.impl("set_", TORCH_FN(set_empty_));
}

} // namespace torch_backend
