#include "csrc/ops/tensor/Resize.h"

#include <algorithm>

#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/memory/DeviceAllocator.h"

namespace torch_backend {
namespace {

std::size_t storage_bytes_for(const c10::TensorImpl* tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  const auto offset = static_cast<std::size_t>(tensor->storage_offset());
  return strides ? at::detail::computeStorageNbytes(sizes, *strides, tensor->itemsize(), offset)
                 : at::detail::computeStorageNbytesContiguous(sizes, tensor->itemsize(), offset);
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

} // namespace torch_backend
