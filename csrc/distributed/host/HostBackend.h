// torch.distributed for devices without a collective library of their own: through a backend for CPU tensors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/distributed/DeviceBackend.h"
#include "csrc/distributed/IssueThread.h"
#include "csrc/distributed/host/HostTensors.h"
#include "csrc/distributed/host/HostWork.h"

namespace torch_backend {

/// Calls return at once also on an asynchronous device: a thread of the group waits for the device and then hands them to
/// the transport.
class HostBackend final : public DeviceBackend {
 public:
  /// Makes the transport of a group that is split off this one.
  using MakeTransport = std::function<c10::intrusive_ptr<c10d::Backend>(
      const c10::intrusive_ptr<c10d::Store>&, int rank, int size, std::chrono::milliseconds timeout)>;

  /// `name` is what the backend is registered as; `transport` does the collectives on CPU tensors.
  HostBackend(std::string name, c10::intrusive_ptr<c10d::Backend> transport, std::chrono::milliseconds timeout,
              MakeTransport make_transport);
  /// Waits until what was issued has ended, without Python's lock: the threads that end it may need that to let go of
  /// tensors, and whoever has the last reference (a model, say) may hold it.
  ~HostBackend() override;

  const char* path() const override {
    return "host";
  }
  void setTimeout(std::chrono::milliseconds timeout) override;

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
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
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

 protected:
  c10::intrusive_ptr<DeviceBackend> make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                              std::chrono::milliseconds timeout) override;

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

  c10::intrusive_ptr<c10d::Backend> transport_;
  const MakeTransport make_transport_;

  IssueThread issuing_; // ends first: its tasks use the transport
};

} // namespace torch_backend
