#include "csrc/ops/host/HostCall.h"

#include <algorithm>

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/DimVector.h>
#include <ATen/ops/alias.h>
#include <c10/util/Exception.h>

#include "csrc/core/Capture.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/host/HostGenerator.h"
#include "csrc/ops/tensor/Empty.h"
#include "csrc/ops/tensor/Resize.h"
#include "csrc/ops/tensor/StorageOf.h"
#include "csrc/ops/tensor/Transfer.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend {
namespace {

struct Mode {
  bool aliased;
  bool coherent; // and synchronous
};

/// Read once: the capabilities are fixed, and this is on the path of every operator.
const Mode& mode() {
  static const Mode instance = [] {
    auto& api = device_api();
    if (api.host_access()) {
      install_cpu_allocator_redirect(); // other devices leave the process's CPU allocator alone
    }
    return Mode{api.host_access(), api.host_access() && api.host_coherent() && !api.async()};
  }();
  return instance;
}

/// Not on the path of every call: where Python refers to the tensor too, another reference takes the interpreter's lock.
at::Tensor borrow(const c10::TensorImpl* impl) {
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(const_cast<c10::TensorImpl*>(impl)));
}

/// Throws if the kernel resized a written argument over another one: it has seen copies, which lie apart.
template <class Argument, class Arguments>
void check_resized(const Argument& argument, const Arguments& all) {
  const auto* original = argument.original;
  const auto sizes = argument.stand_in.sizes(), strides = argument.stand_in.strides();
  const auto offset = static_cast<std::size_t>(original->storage_offset());
  const auto bytes = at::detail::computeStorageNbytes(sizes, strides, original->itemsize(), offset);
  if (sizes == original->sizes() || bytes > original->unsafe_storage().nbytes()) {
    return;
  }
  const at::Tensor resized = borrow(original).as_strided(sizes, strides, original->storage_offset());
  for (const auto& other : all) {
    if (other.original != original) {
      at::assert_no_partial_overlap(resized, borrow(other.original));
    }
  }
}

bool is_strided(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided;
}

/// Of what lies `strides` apart, the first of the elements that are one and the same, along each dimension.
at::Tensor without_repeats(at::Tensor tensor, at::IntArrayRef strides) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (strides[static_cast<std::size_t>(d)] == 0 && tensor.size(d) > 1) {
      tensor = tensor.narrow(d, 0, 1);
    }
  }
  return tensor;
}

/// To be written: elements of an expanded tensor stay one and the same, which the kernel refuses or takes. The memory is as
/// large as if they did not, since some kernels write so.
at::Tensor copy_to_write(const at::Tensor& tensor) {
  const at::Tensor once = without_repeats(tensor, tensor.strides());
  const at::Tensor memory = at::detail::empty_cpu({tensor.numel()}, tensor.scalar_type());
  return memory.narrow(0, 0, once.numel()).view(once.sizes()).copy_(copy_to_host(once)).expand(tensor.sizes());
}

} // namespace

bool runs_on_aliased_memory() {
  return mode().aliased;
}

bool runs_inline() {
  return mode().coherent;
}

HostCall::HostCall(const char* op, unsigned flags)
    : op_(op), flags_(flags), aliased_(mode().aliased), coherent_(mode().coherent) {
  if (aliased_) {
    store_ = &AliasStore::of_this_thread();
  }
}

HostCall::~HostCall() {
  running_.reset();
  if (profiler::recording()) {
    profiler::end_host_kernel(this);
  }
  if (mapped_) {
    try {
      map(false);
    } catch (const std::exception& error) {
      TORCH_WARN(op_, ": ", error.what());
    }
  }
  if (device_before_) {
    exchange_device(*device_before_);
  }
  for (auto i = arguments_.size(); aliased_ && i-- > 0;) {
    store_->give_back(std::move(arguments_[i].stand_in));
  }
}

void HostCall::set_device(c10::Device device) {
  const auto index = device.has_index() ? device.index() : current_device();
  on_one_device_ = on_one_device_ && (!device_.has_index() || device_.index() == index);
  device_.set_index(index);
}

const at::Tensor& HostCall::stand_in(const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) {
    return tensor;
  }
  const auto* impl = tensor.unsafeGetTensorImpl();
  const auto device = impl->device();
  if (device.type() != c10::DeviceType::PrivateUse1) {
    takes_host_ = true;
    on_one_device_ = on_one_device_ && device.is_cpu() && impl->dim() == 0 && !written;
    return tensor;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(is_strided(tensor), op_, " is not implemented for ", tensor.layout(), " tensors on ",
                              device_api().name(), ".");
  check_has_memory(*impl, op_);
  const auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const Argument* neighbour = nullptr; // in the same storage
  for (auto& argument : arguments_) {
    if (argument.original == impl) {
      // Kernels tell an operation in place by its output being an input.
      argument.written = argument.written || written;
      return argument.stand_in;
    }
    if (!neighbour && argument.original->unsafe_storage().unsafeGetStorageImpl() == storage) {
      neighbour = &argument;
    }
  }
  set_device(device);
  if (aliased_) {
    arguments_.push_back(
        {neighbour ? make_cpu_alias(tensor, neighbour->stand_in.storage()) : store_->borrow(tensor), impl, written});
  } else if (const auto* same = find_same_memory(*impl)) {
    arguments_.push_back({at::alias(same->stand_in), impl, written});
  } else {
    graph::refuse_in_capture(current_stream(device.index()), op_);
    const bool repeats = written && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
    arguments_.push_back({repeats ? copy_to_write(tensor) : copy_to_host(tensor), impl, written});
    bytes_copied_ += static_cast<uint64_t>(arguments_.back().stand_in.nbytes());
  }
  return arguments_.back().stand_in;
}

/// An argument that is another view of all of the same elements: kernels see that of their copies too.
const HostCall::Argument* HostCall::find_same_memory(const c10::TensorImpl& impl) const {
  const auto found = std::find_if(arguments_.begin(), arguments_.end(), [&](const Argument& argument) {
    const auto& other = *argument.original;
    return other.unsafe_storage().is_alias_of(impl.unsafe_storage()) && other.dtype() == impl.dtype() &&
           other.storage_offset() == impl.storage_offset() && other.sizes() == impl.sizes() &&
           other.strides() == impl.strides() && other.is_non_overlapping_and_dense();
  });
  return found == arguments_.end() ? nullptr : &*found;
}

at::Generator HostCall::stand_in(const std::optional<at::Generator>& generator) {
  // The generator alone can bring a call here whose tensors are all on the CPU.
  TORCH_CHECK(device_.has_index() || !takes_host_, "Expected a 'cpu' device type for generator but found '",
              device_api().name(), "'");
  auto* device_generator = resolve_generator(generator, device_.has_index() ? device_.index() : current_device());
  if (!has(kDrawsFew)) {
    return draw_cpu_generator(*device_generator);
  }
  constexpr int64_t kMany = 1024; // more than a state has words
  const auto& first = *arguments_.front().original;
  const int64_t words = first.itemsize() > sizeof(float) ? 4 : 2; // of 32 bits, for an element
  return draw_cpu_generator(*device_generator, words * (16 + std::min(first.numel(), kMany)));
}

void HostCall::enter() {
  if (device_.has_index()) {
    // Memory that is used in place would outlive a lost device, and a fork.
    device_api().check_usable(device_.index(), op_);
    if (device_.index() != current_device()) {
      device_before_ = exchange_device(device_.index());
    }
  }
  for (std::size_t i = 0; !aliased_ && i < arguments_.size(); ++i) {
    for (std::size_t j = 0; arguments_[i].written && j < arguments_.size(); ++j) {
      if (arguments_[i].original != arguments_[j].original) {
        // Copies do not overlap, so that the kernel's own check would not see it.
        at::assert_no_partial_overlap(borrow(arguments_[i].original), borrow(arguments_[j].original));
      }
    }
  }
  if (C10_UNLIKELY(graph::any_capture())) {
    graph::refuse_in_capture(current_stream(), op_);
  }
  if (!coherent_) {
    current_stream().synchronize();
    if (aliased_) {
      map(true);
    }
  }
  running_.emplace(/*redirect=*/aliased_ && device_api().host_coherent());
  if (profiler::recording()) {
    const auto stream = current_stream();
    profiler::begin_host_kernel(this, op_, stream.device_index(), stream.handle(), /*on_device=*/aliased_);
  }
}

void HostCall::map(bool on) {
  auto& api = device_api();
  for (const auto& argument : arguments_) {
    const auto* memory = argument.original->unsafe_storage().unsafeGetStorageImpl();
    if (memory->nbytes() == 0) {
      continue;
    }
    const auto access = argument.written ? TB_MAP_READ | TB_MAP_WRITE : TB_MAP_READ;
    auto* ptr = const_cast<void*>(memory->data());
    if (on) {
      api.memory_map(memory->device().index(), ptr, memory->nbytes(), access);
    } else {
      api.memory_unmap(memory->device().index(), ptr, memory->nbytes(), access);
    }
  }
  mapped_ = on;
}

void HostCall::leave() {
  running_.reset();
  if (profiler::recording()) {
    profiler::end_host_kernel(this);
  }
  if (mapped_) {
    map(false);
  }
  for (const auto& argument : arguments_) {
    if (argument.written && !aliased_) {
      check_resized(argument, arguments_); // before any is written
    }
  }
  for (const auto& argument : arguments_) {
    if (argument.written) {
      write_back(argument);
    }
  }
}

void HostCall::write_back(const Argument& argument) {
  auto* original = const_cast<c10::TensorImpl*>(argument.original);
  auto* stand_in = argument.stand_in.unsafeGetTensorImpl();
  const bool same_shape = stand_in->sizes() == original->sizes() && stand_in->strides() == original->strides() &&
                          stand_in->storage_offset() == original->storage_offset();
  const bool same_memory = stand_in->unsafe_storage().data() == original->unsafe_storage().data();
  const at::Tensor& source = argument.stand_in;
  if (aliased_ && (same_memory || is_device_memory(source))) {
    // Some kernels leave their result conjugated and say so with the bit.
    original->_set_conj(stand_in->is_conj());
    original->_set_neg(stand_in->is_neg());
    if (!same_shape || !same_memory) {
      adopt_resized(source, borrow(original));
    }
    return;
  }
  if (stand_in->sizes() != original->sizes()) {
    resize_tensor(original, stand_in->sizes(), stand_in->strides());
  }
  const at::DimVector strides(original->strides());
  bytes_copied_ += copy_from_host(without_repeats(source, strides), without_repeats(borrow(original), strides));
}

HostCall::Shared& HostCall::shared(const c10::Storage& host) {
  for (auto& known : shared_) {
    if (known.host == host.unsafeGetStorageImpl()) {
      return known;
    }
  }
  return shared_.emplace_back(Shared{host.unsafeGetStorageImpl(), 0, {}});
}

void HostCall::expect_result(const at::Tensor& cpu) {
  if (cpu.defined() && is_strided(cpu)) {
    const auto& storage = cpu.unsafeGetTensorImpl()->unsafe_storage();
    if (C10_UNLIKELY(storage.use_count() > 1)) {
      ++shared(storage).results;
    }
  }
}

c10::Storage HostCall::bring(const c10::Storage& host, c10::Device device) {
  auto& known = shared(host);
  if (!known.on_device && host.data() == nullptr) { // zeros that need no memory
    known.on_device = c10::Storage(c10::Storage::use_byte_size_t(), host.nbytes(), c10::DataPtr(nullptr, device),
                                   &device_allocator(), /*resizable=*/true);
  } else if (!known.on_device) {
    const auto from = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(host), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(c10::kByte));
    from.unsafeGetTensorImpl()->set_sizes_contiguous(static_cast<int64_t>(host.nbytes()));
    const at::Tensor to = empty_like_layout(from, device);
    if (lies_on_device(from)) {
      // An argument's memory, for which some kernels make a storage of their own, as one that keeps it in a quantizer does;
      // or the kernel keeps it. What was mapped is the device's again.
      device_allocator().copy_data(data_of(to), data_of(from), from.nbytes());
      current_stream(to.device().index()).synchronize();
    } else {
      bytes_copied_ += copy_from_host(from, to);
    }
    known.on_device = to.storage();
  }
  return known.on_device;
}

at::Tensor HostCall::result(at::Tensor&& cpu) {
  if (!cpu.defined()) {
    return std::move(cpu);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(is_strided(cpu), op_, " returns a ", cpu.layout(), " tensor, which ", device_api().name(),
                              " does not support.");
  const auto& storage = cpu.unsafeGetTensorImpl()->unsafe_storage();
  if (storage.use_count() > 1) {
    for (const auto& argument : arguments_) {
      if (argument.stand_in.unsafeGetTensorImpl() == cpu.unsafeGetTensorImpl()) {
        return borrow(argument.original);
      }
      if (aliased_ && argument.stand_in.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() ==
                          storage.unsafeGetStorageImpl()) {
        return make_device_tensor(cpu, argument.original->unsafe_storage());
      }
    }
  }
  const c10::Device device(c10::DeviceType::PrivateUse1, device_.has_index() ? device_.index() : current_device());
  const bool own = storage.use_count() <= 2 || storage.use_count() <= shared(storage).results + 1;
  if (aliased_ && own && is_device_memory(cpu)) {
    return relabel_as_device(std::move(cpu), device);
  }
  return make_device_tensor(cpu, bring(storage, device));
}

} // namespace torch_backend
