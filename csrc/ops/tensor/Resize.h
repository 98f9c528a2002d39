// Growing tensors and storages of the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>

namespace torch_backend {

/// Give the storage `new_bytes`, keeping what fits of its contents.
void resize_storage_bytes(c10::StorageImpl* storage, std::size_t new_bytes);

/// Set sizes and strides (contiguous if none) and grow the storage if they need it. A tensor whose size is unchanged
/// keeps its strides.
void resize_tensor(c10::TensorImpl* tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides = std::nullopt);

} // namespace torch_backend
