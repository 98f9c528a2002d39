// torch.distributed for devices without a collective library of their own: through a backend for CPU tensors.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/distributed/HostTensors.h"
#include "csrc/distributed/HostWork.h"
#include "csrc/distributed/IssueThread.h"

namespace torch_backend {

/// Note [Order of collectives]
/// A collective sees what was enqueued on the caller's current stream before it, and what is enqueued after its wait()
/// sees its result, whatever stream that is on. Collectives of a group run in the order of the calls, sends and receives
/// as they are matched. Calls return at once also on an asynchronous device: a thread of the group waits for the device
/// and then hands them to the transport.
///
/// Threads: any, but calls of several threads have no order, and all ranks must make the same calls in the same order.
class HostBackend final : public c10d::Backend {
 public:
  /// Makes the transport of a group that is split off this one.
  using MakeTransport = std::function<c10::intrusive_ptr<c10d::Backend>(
      const c10::intrusive_ptr<c10d::Store>&, int rank, int size, std::chrono::milliseconds timeout)>;

  /// As PyTorch has it of a backend's options.
  struct Options final : c10d::Backend::Options {
    using c10d::Backend::Options::Options;
  };

  /// `name` is what the backend is registered as; `transport` does the collectives on CPU tensors.
  HostBackend(std::string name, c10::intrusive_ptr<c10d::Backend> transport, std::chrono::milliseconds timeout,
              MakeTransport make_transport);
  /// Waits until what was issued has ended, without Python's lock: the threads that end it may need that to let go of
  /// tensors, and whoever has the last reference (a model, say) may hold it.
  ~HostBackend() override;

  /// Calls `action(self)` without Python's lock, if the calling thread holds it.
  using RunUnlocked = void (*)(void (*action)(void* self), void* self);
  /// Once, before the first group. The bindings know Python; this library does not.
  static void set_run_unlocked(RunUnlocked run);

  const std::string getBackendName() const override {
    return name_;
  }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return options_;
  }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  /// Every piece of work that has not ended fails. Later calls are refused.
  void abort() override;

  bool supportsSplitting() const override {
    return true;
  }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  bool supportsCoalescing() const override {
    return true;
  }
  /// What the calling thread issues in between becomes one piece of work.
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
                                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int rank, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int rank, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  /// Waits for the current stream of the current device, too.
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  /// Every rank counts from 0: there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  /// How many collectives were called; sends and receives do not count.
  uint64_t getSequenceNumberForGroup() override;

 private:
  /// Hands a collective to the transport.
  using Issue = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;

  std::shared_ptr<HostTensors> tensors_for(const char* what, HostTensors::Use use) const;
  c10::intrusive_ptr<c10d::Work> run(c10d::OpType type, const char* what, std::shared_ptr<HostTensors> tensors,
                                     Issue issue);
  c10::intrusive_ptr<c10d::Work> run_peer(c10d::OpType type, const char* what, std::shared_ptr<HostTensors> tensors,
                                          Issue issue);
  c10::intrusive_ptr<c10d::Work> start(const c10::intrusive_ptr<HostWork>& work,
                                       const std::shared_ptr<HostTensors>& tensors, Issue issue);
  c10::intrusive_ptr<c10d::Work> scatter_and_combine(c10d::OpType type, const char* what, const at::Tensor& output,
                                                     const std::vector<at::Tensor>& inputs,
                                                     const c10d::ReduceScatterOptions& options);
  void close();
  void remember(const c10::intrusive_ptr<HostWork>& work);

  const std::string name_;
  c10::intrusive_ptr<c10d::Backend> transport_;
  const c10::intrusive_ptr<Options> options_;
  const MakeTransport make_transport_;

  std::mutex mutex_; // guards what follows
  bool aborted_ = false;
  bool failed_ = false;
  uint64_t num_collectives_ = 0;
  std::vector<c10::weak_intrusive_ptr<HostWork>> running_; // and some that have ended

  IssueThread issuing_; // ends first: its tasks use the transport
};

} // namespace torch_backend
