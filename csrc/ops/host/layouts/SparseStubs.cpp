// What PyTorch's sparse kernels that know no device ask of one all the same (Note [Kernels that know no device]).

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/empty.h>

#include "csrc/ops/host/layouts/Register.h"

namespace at::native {
// PyTorch exports the stub but ships no header that declares it.
DECLARE_DISPATCH(Tensor (*)(const Tensor&, IntArrayRef), flatten_indices_stub)
} // namespace at::native

namespace torch_backend {
namespace {

/// The place of each column of `indices` in a row-major array of `sizes`.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef sizes) {
  at::Tensor weights = at::empty({static_cast<int64_t>(sizes.size()), 1}, at::TensorOptions(at::kCPU).dtype(at::kLong));
  int64_t stride = 1;
  for (auto dim = static_cast<int64_t>(sizes.size()) - 1; dim >= 0; --dim) {
    weights.mutable_data_ptr<int64_t>()[dim] = stride;
    stride *= sizes[static_cast<std::size_t>(dim)];
  }
  return (indices * weights.to(indices.device())).sum(at::IntArrayRef{0});
}

} // namespace

void register_sparse_stubs() {
  at::native::flatten_indices_stub.set_privateuse1_dispatch_ptr(&flatten_indices);
}

} // namespace torch_backend
