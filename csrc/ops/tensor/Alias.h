// CPU tensors on device memory, and back, without a copy: for devices whose memory the host can access.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch_backend {

/// A CPU tensor on the same memory, with the same sizes, strides, dtype and conj/neg/zero bits. Does not own the
/// memory: `tensor` must outlive it. Its storage is resizable; adopt_resized brings the result back.
at::Tensor make_cpu_alias(const at::Tensor& tensor);

/// Note [Borrowed aliases]
/// A new alias, a tensor and a storage, takes some 60 ns, and a small kernel a microsecond. So every thread keeps the
/// aliases of past calls and points them at other memory. An alias cached on the tensor that it stands for would save more
/// where a tensor is used often, less where it is used once, as most are, and could go stale.
class AliasStore {
 public:
  static AliasStore& of_this_thread() noexcept;

  /// As make_cpu_alias, for one call: give it back afterwards. Of several, the last one first: a call like the one before
  /// then finds each with the sizes that it needs.
  at::Tensor borrow(const at::Tensor& tensor);
  void give_back(at::Tensor&& alias) noexcept;

 private:
  static constexpr std::size_t kMost = 64; // as many as a fused optimizer takes at once

  std::vector<at::Tensor> aliases_; // which nobody else has
};

/// The same on `storage`, that of another alias of the same memory: kernels see overlap by comparing storages.
at::Tensor make_cpu_alias(const at::Tensor& tensor, c10::Storage storage);

/// Whether `tensor`'s memory comes from the device allocator (a CPU kernel that ran under CpuAllocatorRedirect made
/// it).
bool is_device_memory(const at::Tensor& tensor);

/// Whether `cpu` lies in memory that came from the allocator, whoever made it and whatever its storage says: by its address.
bool lies_on_device(const at::Tensor& cpu);

/// Turn a CPU tensor on device memory that nobody else refers to into a tensor of `device`. No copy.
at::Tensor relabel_as_device(at::Tensor&& tensor, c10::Device device);

/// A tensor on `storage`, which is the device's, with the sizes, strides, offset, dtype and conj/neg/zero bits of `like`.
at::Tensor make_device_tensor(const at::Tensor& like, c10::Storage storage);

/// After a kernel resized the alias of `original`: give the original the alias's memory, sizes and strides.
void adopt_resized(const at::Tensor& alias, const at::Tensor& original);

/// While alive, CPU memory that this thread allocates through PyTorch comes from the device allocator, on the current
/// device and stream: outputs of CPU kernels on aliased memory are then device memory, and counted as such.
class CpuAllocatorRedirect {
 public:
  explicit CpuAllocatorRedirect(bool enable);
  ~CpuAllocatorRedirect();
  CpuAllocatorRedirect(const CpuAllocatorRedirect&) = delete;
  CpuAllocatorRedirect& operator=(const CpuAllocatorRedirect&) = delete;

 private:
  bool before_;
};

/// Put the redirecting allocator in front of PyTorch's CPU allocator. Once, for a device whose memory the host can access.
void install_cpu_allocator_redirect();

} // namespace torch_backend
