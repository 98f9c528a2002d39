#include "csrc/aten/Resize.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "csrc/aten/Register.h"
#include "csrc/aten/Registrar.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/core/allocator/DeviceAllocator.h"

namespace torch_backend {
namespace {

std::size_t storage_bytes_for(const c10::TensorImpl* tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  const auto offset = static_cast<std::size_t>(tensor->storage_offset());
  return strides ? at::detail::computeStorageNbytes(sizes, *strides, tensor->itemsize(), offset)
                 : at::detail::computeStorageNbytesContiguous(sizes, tensor->itemsize(), offset);
}

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

void resize_storage_bytes(c10::StorageImpl* storage, std::size_t new_bytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const auto device = storage->device();
  const c10::DeviceGuard guard(device);
  c10::DataPtr data = device_allocator().allocate(new_bytes);
  const auto kept = std::min(new_bytes, storage->nbytes());
  if (kept > 0) {
    device_api().memory_copy(device.index(), data.get(), device.index(), storage->data(), kept,
                             TB_COPY_DEVICE_TO_DEVICE, current_stream(device.index()).handle());
  }
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(new_bytes);
}

void resize_tensor(c10::TensorImpl* tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  // An unchanged size must leave the strides alone: in-place results would otherwise lose their layout.
  if (tensor->sizes() == sizes && (!strides || tensor->strides() == *strides)) {
    return;
  }
  const auto bytes = storage_bytes_for(tensor, sizes, strides);
  if (strides) {
    tensor->set_sizes_and_strides(sizes, *strides);
  } else {
    tensor->set_sizes_contiguous(sizes);
  }
  auto* storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(storage, "A tensor on ", tensor->device(), " that has no storage cannot be resized.");
  if (tensor->numel() > 0 && bytes > storage->nbytes()) {
    resize_storage_bytes(storage, bytes);
  }
}

at::Tensor empty_like_layout(const at::Tensor& like, c10::Device device) {
  const c10::DeviceGuard guard(device);
  const bool dense = like.is_non_overlapping_and_dense();
  const auto strides = dense ? like.strides().vec() : at::infer_dense_strides(like.sizes(), like.strides());
  return at::detail::empty_strided_generic(like.sizes(), strides, &device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), like.scalar_type());
}

void register_resize(Registrar& m) {
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_strided_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor_));
  m.impl("set_", TORCH_FN(set_empty_));
}

} // namespace torch_backend
