#include "csrc/ops/packages/Resident.h"

#include <memory>
#include <utility>

#include <c10/core/StorageImpl.h>

#include "csrc/ops/tensor/Alias.h"

namespace torch_backend::packages {
namespace {

void drop(void* resident) {
  delete static_cast<Resident*>(resident);
}

} // namespace

at::Tensor Resident::stand_in(at::Tensor tensor, bool owned) {
  auto resident = std::make_unique<Resident>(Resident{std::move(tensor), owned});
  const auto& original = resident->tensor;
  const auto bytes = original.storage().nbytes();
  auto* const context = resident.get();
  // An address, since PyTorch takes tensors without one for such as have no memory yet.
  c10::DataPtr data(context, context, &drop, c10::Device(c10::kCPU));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             std::move(data),
                                                             /*allocator=*/nullptr, /*resizable=*/false));
  resident.release();
  return make_cpu_alias(original, std::move(storage));
}

Resident* Resident::of(const at::Tensor& host) {
  const auto& data = host.storage().data_ptr();
  return data.get_deleter() == &drop ? static_cast<Resident*>(data.get_context()) : nullptr;
}

} // namespace torch_backend::packages
