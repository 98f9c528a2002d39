#include "csrc/ops/host/GraphCall.h"

#include <memory>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/host/HostGenerator.h"
#include "csrc/ops/tensor/Empty.h"
#include "csrc/ops/tensor/StorageOf.h"
#include "csrc/ops/tensor/Transfer.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace {

constexpr const char* kName = "torch_backend::compiled_graph";

/// What the storage of a stand-in owns.
struct Kept {
  at::Tensor original;
  const c10::TensorImpl* stand_in;
};

void drop(void* kept) {
  delete static_cast<Kept*>(kept);
}

Kept* kept_by(const c10::Storage& storage) {
  const auto& data = storage.data_ptr();
  return data.get_deleter() == &drop ? static_cast<Kept*>(data.get_context()) : nullptr;
}

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset() &&
         a.scalar_type() == b.scalar_type();
}

} // namespace

GraphCall::GraphCall(c10::DeviceIndex device)
    : device_(c10::DeviceType::PrivateUse1, device < 0 ? current_device() : device) {
  TORCH_CHECK(runs_on_aliased_memory(), "Graphs compiled for the CPU need memory that the host can access, which ",
              device_api().name(), " does not have.");
}

GraphCall::~GraphCall() {
  running_.reset();
  if (profiler::recording()) {
    profiler::end_host_kernel(this);
  }
  if (mapped_) {
    try {
      map(false);
    } catch (const std::exception& error) {
      TORCH_WARN(kName, ": ", error.what());
    }
  }
  if (device_before_) {
    exchange_device(*device_before_);
  }
}

at::Tensor GraphCall::stand_in(at::Tensor tensor) {
  if (!tensor.defined() || tensor.device().type() != c10::DeviceType::PrivateUse1) {
    return tensor;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, "A compiled graph takes no ", tensor.layout(),
                              " tensors on ", device_api().name(), ".");
  const auto& storage = storage_of(tensor, kName);
  if (!device_api().host_coherent()) {
    inputs_.push_back(storage);
  }
  auto* memory = storage.unsafeGetStorageImpl();
  const auto size = memory->nbytes();
  void* const ptr = memory->_mutable_data_ptr_no_checks().get();
  auto kept = std::make_unique<Kept>(Kept{tensor, nullptr});
  auto* const kept_ptr = kept.get();
  auto stand_in = make_cpu_alias(
      tensor, c10::Storage(c10::make_intrusive<c10::StorageImpl>(
                  c10::StorageImpl::use_byte_size_t(), size,
                  c10::DataPtr(ptr, kept.release(), &drop, c10::Device(c10::DeviceType::CPU)), /*allocator=*/nullptr,
                  /*resizable=*/false)));
  kept_ptr->stand_in = stand_in.unsafeGetTensorImpl();
  return stand_in;
}

void GraphCall::enter() {
  // Memory that is used in place would outlive a lost device, and a fork.
  device_api().check_usable(device_.index(), kName);
  if (device_.index() != current_device()) {
    device_before_ = exchange_device(device_.index());
  }
  if (C10_UNLIKELY(graph::any_capture())) {
    graph::refuse_in_capture(current_stream(), kName);
  }
  if (!runs_inline()) {
    current_stream().synchronize();
    map(true);
  }
  running_.emplace(/*redirect=*/device_api().host_coherent());
  if (profiler::recording()) {
    const auto stream = current_stream();
    profiler::begin_host_kernel(this, kName, stream.device_index(), stream.handle(), /*on_device=*/true);
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

void GraphCall::leave() {
  running_.reset();
  if (profiler::recording()) {
    profiler::end_host_kernel(this);
  }
  if (mapped_) {
    map(false);
  }
}

GraphCall::Shared& GraphCall::shared(const c10::Storage& host) {
  for (auto& known : shared_) {
    if (known.host == host.unsafeGetStorageImpl()) {
      return known;
    }
  }
  return shared_.emplace_back(Shared{host.unsafeGetStorageImpl(), 0, {}});
}

void GraphCall::expect_result(const at::Tensor& cpu) {
  const auto& storage = cpu.unsafeGetTensorImpl()->unsafe_storage();
  if (C10_UNLIKELY(storage && storage.use_count() > 1 && !kept_by(storage))) {
    ++shared(storage).results;
  }
}

at::Tensor GraphCall::result(const at::Tensor& cpu, bool on_device) {
  if (!cpu.device().is_cpu()) {
    return cpu;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(cpu.layout() == c10::kStrided, "A compiled graph returns no ", cpu.layout(),
                              " tensors on ", device_api().name(), ".");
  const auto& storage = cpu.unsafeGetTensorImpl()->unsafe_storage();
  const auto* kept = kept_by(storage);
  if (kept != nullptr && on_device) {
    if (kept->stand_in == cpu.unsafeGetTensorImpl() && same_geometry(cpu, kept->original)) {
      return kept->original;
    }
    return make_device_tensor(cpu, kept->original.storage());
  }
  if (storage.device().type() == c10::DeviceType::PrivateUse1) {
    return make_device_tensor(cpu, storage); // of which another result was relabelled
  }
  const bool is_devices = is_device_memory(cpu);
  if (on_device && is_devices && (storage.use_count() == 1 || storage.use_count() <= shared(storage).results)) {
    return relabel_as_device(at::Tensor(cpu), device_);
  }
  return on_device || is_devices || kept != nullptr ? copied(cpu, on_device) : cpu;
}

at::Tensor GraphCall::copied(const at::Tensor& cpu, bool on_device) {
  const auto& host = cpu.unsafeGetTensorImpl()->unsafe_storage();
  auto& known = shared(host);
  if (!known.copy) {
    const auto size = static_cast<int64_t>(host.nbytes());
    const auto bytes = at::TensorOptions(c10::kCPU).dtype(c10::kByte);
    const at::Tensor from = at::empty({0}, bytes).set_(host, 0, {size}, {1});
    const at::Tensor to = on_device ? empty_like_layout(from, device_) : at::empty({size}, bytes);
    if (on_device) {
      copy_from_host(from, to);
    } else {
      to.copy_(from);
    }
    known.copy = to.storage();
  }
  if (on_device) {
    return make_device_tensor(cpu, known.copy);
  }
  return make_cpu_alias(cpu, known.copy);
}

bool graphs_run_on_stream() {
  auto& api = device_api();
  return api.host_access() && api.host_coherent() && api.async() && api.has_stream_host_function();
}

at::Tensor draw_seeds(int64_t count, c10::DeviceIndex device) {
  auto* generator = resolve_generator(std::nullopt, device < 0 ? current_device() : device);
  return at::empty({count}, at::TensorOptions(c10::kCPU).dtype(c10::kLong)).random_(draw_cpu_generator(*generator));
}

} // namespace torch_backend
