// Operators of sparse, nested and quantized tensors.
#pragma once

namespace torch_backend {

/// Under the dispatch keys of their layouts.
void register_layouts();
/// For kernels that ask for a stub of the device.
void register_sparse_stubs();

} // namespace torch_backend
