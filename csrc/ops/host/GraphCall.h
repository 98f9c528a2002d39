// Running a compiled graph of the CPU's on the device's memory: what HostCall is to one kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/host/HostCall.h"

namespace torch_backend {

/// One run of a graph that was compiled for the CPU. In order: stand_in() for every tensor it takes, enter(), the graph,
/// leave(), expect_result() for all tensors that it returned, and result() for each. Needs memory that the host can access.
///
/// Note [Compiled graphs on aliased memory]
/// A graph frees its inputs while it runs, and may reuse their memory for what it returns. So a stand-in owns the tensor
/// that it stands for, and its storage tells which that is; nothing else here keeps an input. What the graph allocates is
/// the device's (Note [Redirected CPU allocations]).
/// Most inputs are kept by the caller, such as parameters. For these a graph takes the same stand-in with every call,
/// which costs a tenth.
/// As with HostCall, the graph runs on the calling thread, and on an asynchronous device enter() waits for the stream.
/// A graph whose results are known before may go onto the stream instead, see graphs_run_on_stream().
///
/// Threads: one thread per object.
class GraphCall {
 public:
  /// What a stand-in stands for.
  struct Kept {
    c10::MaybeOwned<at::Tensor> original;
    const c10::TensorImpl* stand_in = nullptr;
    bool resized = false; // the graph may give its storage another size, and it may have none before
  };

  /// `device` is the graph's: -1 the current one.
  explicit GraphCall(c10::DeviceIndex device);
  ~GraphCall();
  GraphCall(const GraphCall&) = delete;
  GraphCall& operator=(const GraphCall&) = delete;

  /// The CPU tensor to run with in place of `tensor`, which is the device's.
  at::Tensor stand_in(const at::Tensor& tensor);
  /// The same without owning `tensor`, which is in `kept`: both have to stay until the stand-in is settled.
  at::Tensor stand_in_for(Kept& kept);
  /// ... with a stand-in that settle() has let go. False if it is of another form; `kept` is then as before.
  bool stand_in_again(const at::Tensor& stand_in, Kept& kept);
  /// After the run: whether nobody else has the stand-in, so that it can be used again. If somebody has, or
  /// if not `own`, it owns its tensor from now on.
  static bool settle(const at::Tensor& stand_in, const Kept& kept, bool own);

  void enter();
  void leave();

  /// After the run, and before any result: gives the tensor the memory that the graph has given its stand-in.
  void adopt(const at::Tensor& stand_in, Kept& kept);

  void expect_result(const at::Tensor& cpu) {
    call_.expect_result(cpu);
  }
  /// The tensor that the graph would have returned on the device if `on_device`, otherwise on the CPU: the input that `cpu`
  /// stands for, a view of one, a tensor on memory that the graph has allocated, which tensors that share it will share, or
  /// a copy. With `own`, nobody has `cpu` but the caller, and it is relabelled itself where that will do.
  at::Tensor result(const at::Tensor& cpu, bool on_device, bool own);

 private:
  /// The memory of an input.
  c10::StorageImpl* take(const at::Tensor& tensor, bool resized = false);
  void map(bool on);

  const c10::Device device_;
  HostCall call_;
  c10::SmallVector<c10::Storage, 0> inputs_; // where memory has to be mapped
  bool mapped_ = false;
};

/// Whether a graph may run as host work (HostLaunch.h), which sees aliases of its inputs and leaves its results in tensors
/// that were made for them: the device is asynchronous, and its memory coherent.
bool graphs_run_on_stream();

/// CPU int64 numbers that follow from the default generator of the device, which moves on.
at::Tensor draw_seeds(int64_t count, c10::DeviceIndex device);

} // namespace torch_backend
