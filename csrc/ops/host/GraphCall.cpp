#include "csrc/ops/host/GraphCall.h"

#include <memory>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/copy_native.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/host/HostGenerator.h"
#include "csrc/ops/tensor/StorageOf.h"

namespace torch_backend {
namespace {

constexpr const char* kName = "torch_backend::compiled_graph";

using Kept = GraphCall::Kept;

void drop(void* kept) {
  delete static_cast<Kept*>(kept);
}

void keep(void*) {}

/// What `storage` stands for, nullptr if it is not a stand-in's.
Kept* kept_by(const c10::Storage& storage) {
  const auto& data = storage.data_ptr();
  const auto deleter = data.get_deleter();
  return deleter == &drop || deleter == &keep ? static_cast<Kept*>(data.get_context()) : nullptr;
}

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset() &&
         a.dtype() == b.dtype();
}

c10::DataPtr data_of(c10::StorageImpl* memory, Kept* context, c10::DeleterFnPtr deleter) {
  return {memory->_mutable_data_ptr_no_checks().get(), context, deleter, c10::Device(c10::DeviceType::CPU)};
}

at::Tensor new_alias(const at::Tensor& tensor, std::size_t bytes, c10::DataPtr data, bool resizable = false) {
  auto* const allocator = resizable ? c10::GetAllocator(c10::DeviceType::CPU) : nullptr;
  return make_cpu_alias(tensor,
                        c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                                           std::move(data), allocator, resizable)));
}

} // namespace

GraphCall::GraphCall(c10::DeviceIndex device)
    : device_(c10::DeviceType::PrivateUse1, device < 0 ? current_device() : device), call_(kName) {
  TORCH_CHECK(runs_on_aliased_memory(), "Graphs compiled for the CPU need memory that the host can access, which ",
              device_api().name(), " does not have.");
}

GraphCall::~GraphCall() {
  if (mapped_) {
    try {
      map(false);
    } catch (const std::exception& error) {
      TORCH_WARN(kName, ": ", error.what());
    }
  }
}

c10::StorageImpl* GraphCall::take(const at::Tensor& tensor, bool resized) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, "A compiled graph takes no ", tensor.layout(),
                              " tensors on ", device_api().name(), ".");
  const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  if (!resized || !storage || storage.nbytes() != 0) {
    check_has_memory(*tensor.unsafeGetTensorImpl(), kName);
  }
  const bool coherent = device_api().host_coherent();
  TORCH_CHECK_NOT_IMPLEMENTED(coherent || !resized,
                              "A compiled graph resizes a storage, whose memory the host has to "
                              "map on ",
                              device_api().name(), ". Resize it outside of compiled code.");
  if (!coherent) {
    inputs_.push_back(storage);
  }
  return storage.unsafeGetStorageImpl();
}

at::Tensor GraphCall::stand_in(const at::Tensor& tensor) {
  auto* const memory = take(tensor);
  auto kept = std::make_unique<Kept>(Kept{c10::MaybeOwned<at::Tensor>::owned(at::Tensor(tensor))});
  auto* const kept_ptr = kept.get();
  auto result = new_alias(tensor, memory->nbytes(), data_of(memory, kept.release(), &drop));
  kept_ptr->stand_in = result.unsafeGetTensorImpl();
  return result;
}

at::Tensor GraphCall::stand_in_for(Kept& kept) {
  auto* const memory = take(*kept.original, kept.resized);
  auto result =
      new_alias(*kept.original, memory->nbytes(), data_of(memory, &kept, &keep), kept.resized && memory->resizable());
  kept.stand_in = result.unsafeGetTensorImpl();
  return result;
}

bool GraphCall::stand_in_again(const at::Tensor& stand_in, Kept& kept) {
  const auto& original = *kept.original;
  const auto* impl = original.unsafeGetTensorImpl();
  const bool same = original.layout() == c10::kStrided && same_geometry(stand_in, original) &&
                    stand_in.is_inference() == c10::InferenceMode::is_enabled() && !impl->is_conj() &&
                    !impl->is_neg() && !impl->is_wrapped_number() && !stand_in.is_conj() && !stand_in.is_neg();
  if (!same) {
    return false;
  }
  auto* const from = take(original, kept.resized);
  auto* const memory = stand_in.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  memory->set_data_ptr_noswap(data_of(from, &kept, &keep));
  memory->set_nbytes(from->nbytes());
  return true;
}

void GraphCall::adopt(const at::Tensor& stand_in, Kept& kept) {
  const auto& storage = stand_in.unsafeGetTensorImpl()->unsafe_storage();
  if (kept_by(storage) != &kept) {
    adopt_resized(stand_in, *kept.original);
    auto* const memory = kept.original->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(data_of(memory, &kept, &keep));
  }
}

bool GraphCall::settle(const at::Tensor& stand_in, const Kept& kept, bool own) {
  const auto& storage = stand_in.unsafeGetTensorImpl()->unsafe_storage();
  if (own && stand_in.use_count() == 1 && storage.use_count() == 1 && kept_by(storage) == &kept) {
    return true;
  }
  if (kept_by(storage) == &kept) {
    auto* const owner = new Kept{c10::MaybeOwned<at::Tensor>::owned(at::Tensor(*kept.original)), kept.stand_in};
    auto* const memory = kept.original->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(data_of(memory, owner, &drop));
  }
  return false;
}

void GraphCall::enter() {
  call_.set_device(device_);
  call_.enter();
  if (!inputs_.empty()) {
    map(true);
  }
}

void GraphCall::leave() {
  call_.leave();
  if (mapped_) {
    map(false);
  }
}

void GraphCall::map(bool on) {
  auto& api = device_api();
  for (const auto& storage : inputs_) {
    if (storage.nbytes() == 0) {
      continue;
    }
    auto* ptr = const_cast<void*>(storage.data());
    if (on) {
      api.memory_map(storage.device().index(), ptr, storage.nbytes(), TB_MAP_READ | TB_MAP_WRITE);
    } else {
      api.memory_unmap(storage.device().index(), ptr, storage.nbytes(), TB_MAP_READ | TB_MAP_WRITE);
    }
  }
  mapped_ = on;
}

at::Tensor GraphCall::result(const at::Tensor& cpu, bool on_device, bool own) {
  if (!cpu.device().is_cpu()) {
    return cpu;
  }
  const auto& storage = cpu.unsafeGetTensorImpl()->unsafe_storage();
  const auto* kept = storage ? kept_by(storage) : nullptr;
  if (!on_device) {
    const bool is_devices = kept != nullptr || (storage && is_device_memory(cpu));
    if (!is_devices) {
      return cpu;
    }
    at::Tensor own = at::detail::empty_strided_cpu(cpu.sizes(), cpu.strides(), cpu.scalar_type());
    return at::native::copy_(own, cpu);
  }
  if (kept != nullptr) {
    if (kept->stand_in == cpu.unsafeGetTensorImpl() && same_geometry(cpu, *kept->original)) {
      return *kept->original;
    }
    return make_device_tensor(cpu, kept->original->storage());
  }
  if (storage && storage.device() == device_) {
    return make_device_tensor(cpu, storage); // of which another result was relabelled
  }
  if (own && cpu.use_count() == 1 && storage && storage.use_count() == 1 && is_device_memory(cpu)) {
    using Borrowed = c10::MaybeOwnedTraits<at::Tensor>;
    at::Tensor borrowed = Borrowed::createBorrow(cpu);
    borrowed = relabel_as_device(std::move(borrowed), device_);
    Borrowed::destroyBorrow(borrowed);
    return cpu;
  }
  return call_.result(at::Tensor(cpu));
}

bool graphs_run_on_stream() {
  auto& api = device_api();
  return api.host_access() && api.host_coherent() && api.async() && api.has_stream_host_function();
}

at::Tensor draw_seeds(int64_t count, c10::DeviceIndex device) {
  auto* generator = resolve_generator(std::nullopt, device < 0 ? current_device() : device);
  const auto drawn = draw_cpu_generator(*generator);
  at::Tensor seeds = at::detail::empty_cpu({count}, c10::kLong);
  for (auto* seed = seeds.mutable_data_ptr<int64_t>(); count > 0; --count) {
    *seed++ = static_cast<int64_t>(drawn.get<at::CPUGeneratorImpl>()->random64() >> 1);
  }
  return seeds;
}

} // namespace torch_backend
