// Running a CPU kernel on device tensors: zero-copy on host-accessible memory, through copies elsewhere.
#pragma once

#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/tensor/Alias.h"

namespace torch_backend {

/// What an operator does that its arguments' types do not tell; a mask.
enum HostCallFlags : unsigned {
  kWritesLists = 1,     // the tensors of its list arguments
  kWritesOptionals = 2, // its optional tensors, though the schema does not say so (running statistics)
  kDrawsFew = 4,        // as few random words for each element of its first tensor as HostCall::stand_in makes
};

/// One call of a CPU kernel for the device. In order: stand_in() for every tensor argument, enter(), the kernel,
/// leave(), then expect_result() and result() for every new tensor it returned. The stand-ins must be kept alive until
/// leave() returned.
///
/// Note [Host calls and streams]
/// The kernel runs on the calling thread. On an asynchronous device enter() first waits for the device's current
/// stream, so the kernel sees, and is seen by, the work on that stream in order; what it computed is complete when
/// leave() returns. On host-accessible memory that is not coherent every range is mapped from enter() to leave().
///
/// Threads: one thread per object.
class HostCall {
 public:
  /// `op` names the operator in messages, e.g. "aten::add.Tensor". Must outlive the object. `flags`: HostCallFlags.
  explicit HostCall(const char* op, unsigned flags = 0);
  ~HostCall();
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  /// The CPU tensor to call the kernel with. Undefined and CPU tensors stand in for themselves. With `written`, leave()
  /// brings the kernel's stores, and a resize, back to `tensor`, which must outlive the call. The reference is good until
  /// the next call of stand_in, the tensor it refers to as long as this object.
  const at::Tensor& stand_in(const at::Tensor& tensor, bool written = false);

  bool has(HostCallFlags flag) const {
    return (flags_ & flag) != 0;
  }

  /// Whether the arguments so far are what any operator takes: on one device, and on the CPU only numbers to be read.
  /// What else an operator takes, and what it says to the rest, is DeviceCheck.h's.
  bool on_one_device() const {
    return on_one_device_;
  }

  /// For operators that get their device as an argument.
  void set_device(c10::Device device);

  /// A CPU generator whose numbers follow from the device generator's seed and offset, which moves on. Throws if
  /// `generator` is of another device type.
  at::Generator stand_in(const std::optional<at::Generator>& generator);

  /// Device guard, waits, maps, and from here on redirects allocations.
  void enter();
  void leave();

  /// Of several results, all of them before the first is brought: those that share a storage will share it on the device.
  void expect_result(const at::Tensor& cpu);

  /// Bring a tensor that the kernel returned to the device: a view of an argument, or of a storage of the same size as
  /// the kernel's.
  at::Tensor result(at::Tensor&& cpu);

  /// Bytes copied between device and host so far.
  uint64_t bytes_copied() const {
    return bytes_copied_;
  }

 private:
  struct Argument {
    at::Tensor stand_in;
    const c10::TensorImpl* original;
    bool written;
  };
  struct Running {
    explicit Running(bool redirect) : allocator(redirect) {}
    CpuAllocatorRedirect allocator;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
  };

  /// A storage that several results share, or that was copied to the device for the first of them.
  struct Shared {
    const c10::StorageImpl* host;
    std::size_t results;
    c10::Storage on_device;
  };

  const Argument* find_same_memory(const c10::TensorImpl& impl) const;
  void write_back(const Argument& argument);
  Shared& shared(const c10::Storage& host);
  c10::Storage bring(const c10::Storage& host, c10::Device device);
  void map(bool on);

  const char* op_;
  unsigned flags_;
  AliasStore* store_ = nullptr;
  bool aliased_;  // device memory is used in place
  bool coherent_; // ... without mapping, and complete without waiting
  bool mapped_ = false;
  bool takes_host_ = false; // some argument is on the CPU
  bool on_one_device_ = true;
  c10::Device device_{c10::DeviceType::PrivateUse1, -1};
  std::optional<c10::DeviceIndex> device_before_;
  c10::SmallVector<Argument, 6> arguments_;
  c10::SmallVector<Shared, 1> shared_;
  std::optional<Running> running_;
  uint64_t bytes_copied_ = 0;
};

/// The device's way of running CPU kernels, decided once: whether stand-ins alias device memory.
bool runs_on_aliased_memory();

/// ... and whether, on top of that, a kernel may run where it is called: memory is coherent and nothing is
/// asynchronous.
bool runs_inline();

} // namespace torch_backend
