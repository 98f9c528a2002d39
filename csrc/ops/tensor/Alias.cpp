#include "csrc/ops/tensor/Alias.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/tensor/StorageOf.h"

namespace torch_backend {
namespace {

thread_local bool redirect = false;

/// Asked of no plugin: what it says of an address may be wrong, and a kernel's memory is never from elsewhere.
bool is_from_the_allocator(const void* ptr) {
  c10::DeviceIndex device = 0;
  void* base = nullptr;
  std::size_t size = 0;
  return device_allocator().owns(ptr, &device, &base, &size);
}

/// Note [Redirected CPU allocations]
/// An aliased CPU kernel allocates its outputs and temporaries with PyTorch's CPU allocator. While such a kernel runs,
/// this allocator hands out device memory labelled as CPU memory; an output is then relabelled, not copied. Temporaries
/// count as device memory too, as a GPU kernel's workspace does. Only the thread that runs the kernel is redirected. A
/// DataPtr carries its own deleter, so it does not matter which label it has when it is freed.
///
/// So the kernel's CPU tensors lie in device memory, and it may keep some, or copy some to the device as a graph's random
/// operators do. A driver may take a copy for what it says it is: one from the host, of what is not the host's, is dropped.
/// Such a copy therefore goes through memory of the host's own: see enqueue_raw_copy and
/// empty_like_layout.
class RedirectingCpuAllocator final : public c10::Allocator {
 public:
  explicit RedirectingCpuAllocator(c10::Allocator* next) : next_(next) {}

  c10::DataPtr allocate(size_t n) override {
    if (!redirect) {
      return next_->allocate(n);
    }
    c10::DataPtr data = device_allocator().allocate_for_host(n);
    data.unsafe_set_device(c10::Device(c10::DeviceType::CPU));
    return data;
  }

  /// Libraries under ATen (oneDNN) take memory as a bare pointer and give it back later, redirected or not.
  c10::DeleterFnPtr raw_deleter() const override {
    static const c10::DeleterFnPtr next_deleter = next_->raw_deleter();
    return [](void* ptr) {
      if (is_from_the_allocator(ptr)) {
        device_allocator().free(ptr);
      } else {
        next_deleter(ptr);
      }
    };
  }

  void copy_data(void* dst, const void* src, std::size_t count) const override {
    next_->copy_data(dst, src, count);
  }

 private:
  c10::Allocator* next_;
};

c10::Allocator* redirecting_allocator() {
  static auto* allocator = new RedirectingCpuAllocator(c10::GetAllocator(c10::DeviceType::CPU));
  return allocator;
}

/// The device that a tensor remembers apart from its storage's, which public calls refresh only with another storage. The
/// member is protected: only a derived class may name it.
struct DeviceMember : c10::TensorImpl {
  static void set(c10::TensorImpl& tensor, c10::Device device) {
    tensor.*(&DeviceMember::device_opt_) = device;
  }
};

constexpr c10::DispatchKeySet kValueBits{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                         c10::DispatchKey::ZeroTensor};

} // namespace

CpuAllocatorRedirect::CpuAllocatorRedirect(bool enable) : before_(redirect) {
  redirect = enable;
}

CpuAllocatorRedirect::~CpuAllocatorRedirect() {
  redirect = before_;
}

void install_cpu_allocator_redirect() {
  // The highest priority: whoever replaces the CPU allocator later would leave outputs outside the device's accounts.
  c10::SetAllocator(c10::DeviceType::CPU, redirecting_allocator(), 255);
}

at::Tensor make_cpu_alias(const at::Tensor& tensor) {
  auto* memory = storage_of(tensor).unsafeGetStorageImpl();
  return make_cpu_alias(
      tensor, c10::Storage(c10::make_intrusive<c10::StorageImpl>(
                  c10::StorageImpl::use_byte_size_t(), memory->nbytes(),
                  c10::DataPtr(memory->_mutable_data_ptr_no_checks().get(), c10::Device(c10::DeviceType::CPU)),
                  redirecting_allocator(),
                  /*resizable=*/true)));
}

AliasStore& AliasStore::of_this_thread() noexcept {
  thread_local AliasStore store;
  return store;
}

at::Tensor AliasStore::borrow(const at::Tensor& tensor) {
  if (C10_UNLIKELY(aliases_.empty())) {
    return make_cpu_alias(tensor);
  }
  const auto* from = tensor.unsafeGetTensorImpl();
  auto* ptr = storage_of(*from).unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
  const auto bytes = from->unsafe_storage().unsafeGetStorageImpl()->nbytes();
  at::Tensor alias = std::move(aliases_.back());
  aliases_.pop_back();
  auto* to = alias.unsafeGetTensorImpl();
  auto* memory = to->unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(!memory->_mutable_data_ptr_no_checks().unsafe_reset_data_and_ctx(ptr))) { // memory of a kernel's
    memory->set_data_ptr_noswap(c10::DataPtr(ptr, c10::Device(c10::DeviceType::CPU)));
  }
  if (memory->nbytes() != bytes) {
    memory->set_nbytes(bytes);
  }
  if (to->dtype() != from->dtype()) {
    to->set_storage_and_dtype(c10::Storage(to->storage()), from->dtype());
  }
  if (to->sizes() != from->sizes() || to->strides() != from->strides()) {
    to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  } else if (to->storage_offset() != from->storage_offset()) {
    to->set_storage_offset(from->storage_offset());
  }
  if (C10_UNLIKELY((to->key_set() & kValueBits) != (from->key_set() & kValueBits))) {
    to->_set_conj(from->is_conj());
    to->_set_neg(from->is_neg());
  }
  if (C10_UNLIKELY(to->is_wrapped_number() != from->is_wrapped_number())) {
    to->set_wrapped_number(from->is_wrapped_number());
  }
  return alias;
}

void AliasStore::give_back(at::Tensor&& alias) noexcept {
  auto* impl = alias.unsafeGetTensorImpl();
  // What a kernel kept, made part of its result or saw in inference mode is not the same for another call.
  if (aliases_.size() < kMost && alias.use_count() == 1 && impl->unsafe_storage().use_count() == 1 &&
      !impl->is_inference() && !impl->key_set().has(c10::DispatchKey::ZeroTensor)) {
    aliases_.push_back(std::move(alias));
  }
}

at::Tensor make_cpu_alias(const at::Tensor& tensor, c10::Storage storage) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  auto alias = at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU) | (impl->key_set() & kValueBits), impl->dtype());
  auto* alias_impl = alias.unsafeGetTensorImpl();
  alias_impl->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (impl->is_wrapped_number()) {
    alias_impl->set_wrapped_number(true);
  }
  return at::Tensor(std::move(alias));
}

bool is_device_memory(const at::Tensor& tensor) {
  const auto* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return storage->nbytes() == 0 || device_allocator().is_own(storage->data_ptr());
}

bool lies_on_device(const at::Tensor& cpu) {
  return device_api().host_access() && is_from_the_allocator(cpu.storage().data());
}

at::Tensor relabel_as_device(at::Tensor&& tensor, c10::Device device) {
  auto* impl = tensor.unsafeGetTensorImpl();
  auto* memory = impl->unsafe_storage().unsafeGetStorageImpl();
  memory->_mutable_data_ptr_no_checks().unsafe_set_device(device);
  memory->set_allocator(&device_allocator());
  if (tensor.use_count() == 1) {
    DeviceMember::set(*impl, device);
    impl->_change_backend_component_keys(device);
    return std::move(tensor);
  }
  auto keys = impl->key_set() - c10::DispatchKeySet(c10::BackendComponent::CPUBit);
  auto relabelled = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(impl->unsafe_storage()), keys | c10::DispatchKeySet(c10::BackendComponent::PrivateUse1Bit),
      impl->dtype());
  relabelled.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  return at::Tensor(std::move(relabelled));
}

at::Tensor make_device_tensor(const at::Tensor& like, c10::Storage storage) {
  const auto* impl = like.unsafeGetTensorImpl();
  auto result = at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | (impl->key_set() & kValueBits),
      impl->dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  return at::Tensor(std::move(result));
}

void adopt_resized(const at::Tensor& alias, const at::Tensor& original) {
  auto* from = alias.unsafeGetTensorImpl();
  auto* to = original.unsafeGetTensorImpl();
  auto* from_memory = from->unsafe_storage().unsafeGetStorageImpl();
  auto* to_memory = to->unsafe_storage().unsafeGetStorageImpl();
  if (from_memory->data() != to_memory->data()) {
    const auto device = to_memory->device();
    c10::DataPtr data = from_memory->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)));
    data.unsafe_set_device(device);
    to_memory->set_data_ptr_noswap(std::move(data));
    to_memory->set_nbytes(from_memory->nbytes());
  }
  if (from->sizes() != to->sizes() || from->strides() != to->strides() ||
      from->storage_offset() != to->storage_offset()) {
    to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  }
}

} // namespace torch_backend
