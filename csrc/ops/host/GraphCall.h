// Running a compiled graph of the CPU's on the device's memory: what HostCall is to one kernel.
#pragma once

#include <optional>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/tensor/Alias.h"

namespace torch_backend {

/// One run of a graph that was compiled for the CPU. In order: stand_in() for every tensor it takes, enter(), the graph,
/// leave(), expect_result() for all tensors that it returned, and result() for each. Needs memory that the host can access.
///
/// Note [Compiled graphs on aliased memory]
/// A graph frees its inputs while it runs, and may reuse their memory for what it returns. So a stand-in owns the tensor
/// that it stands for, and its storage tells which that is; nothing else here keeps an input. What the graph allocates is
/// the device's (Note [Redirected CPU allocations]).
/// As with HostCall, the graph runs on the calling thread, and on an asynchronous device enter() waits for the stream.
/// A graph whose results are known before may go onto the stream instead, see graphs_run_on_stream().
///
/// Threads: one thread per object.
class GraphCall {
 public:
  /// `device` is the graph's: -1 the current one.
  explicit GraphCall(c10::DeviceIndex device);
  ~GraphCall();
  GraphCall(const GraphCall&) = delete;
  GraphCall& operator=(const GraphCall&) = delete;

  /// The CPU tensor to run with; a tensor of the CPU stands for itself.
  at::Tensor stand_in(at::Tensor tensor);
  void enter();
  void leave();

  void expect_result(const at::Tensor& cpu);
  /// The tensor that the graph would have returned on the device if `on_device`, otherwise on the CPU: the input that `cpu`
  /// stands for, a view of one, a tensor on memory that the graph has allocated, which tensors that share it will share, or
  /// a copy.
  at::Tensor result(const at::Tensor& cpu, bool on_device);

 private:
  struct Running {
    explicit Running(bool redirect) : allocator(redirect) {}
    CpuAllocatorRedirect allocator;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
  };
  /// A storage of the graph's results.
  struct Shared {
    const c10::StorageImpl* host;
    std::size_t results;
    c10::Storage copy; // of the other side
  };

  void map(bool on);
  Shared& shared(const c10::Storage& host);
  at::Tensor copied(const at::Tensor& cpu, bool on_device);

  const c10::Device device_;
  std::optional<c10::DeviceIndex> device_before_;
  bool mapped_ = false;
  c10::SmallVector<c10::Storage, 0> inputs_; // where memory has to be mapped
  c10::SmallVector<Shared, 2> shared_;
  std::optional<Running> running_;
};

/// Whether a graph may run as host work (HostLaunch.h), which sees aliases of its inputs and leaves its results in tensors
/// that were made for them: the device is asynchronous, and its memory coherent.
bool graphs_run_on_stream();

/// CPU int64 numbers that follow from the default generator of the device, which moves on.
at::Tensor draw_seeds(int64_t count, c10::DeviceIndex device);

} // namespace torch_backend
