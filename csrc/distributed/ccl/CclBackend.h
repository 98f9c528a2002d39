// torch.distributed for devices with a collective library: through the table "ccl.1".
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/distributed/DeviceBackend.h"
#include "csrc/distributed/ccl/Group.h"

namespace torch_backend::ccl {

/// Checks arguments, and says what each collective does with its tensors; the group runs it. Collectives run on a stream
/// of their own, see Note [Work on the device's stream]; each direction of sends between two ranks too.
class CclBackend final : public DeviceBackend {
 public:
  /// `name` is what the backend is registered as; `store` the group's own. Connects no ranks yet.
  CclBackend(std::string name, c10::intrusive_ptr<c10d::Store> store, int rank, int size,
             std::chrono::milliseconds timeout);
  /// Waits until what was issued has ended, without Python's lock.
  ~CclBackend() override;

  const char* path() const override {
    return "ccl.1";
  }
  /// How often each slot of the library did what this group asked of it.
  std::map<std::string, uint64_t> slot_calls() const {
    return group_->slot_calls();
  }

  c10d::ErrorType getError() override;
  void eagerConnectSingleDevice(at::Device device) override;
  void abort() override;
  /// Waits until what was issued has ended, and frees the communicators; part of destroy_process_group().
  void shutdown() override;

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
  /// Tags are not looked at: messages between two ranks arrive in the order in which they are sent.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int rank, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int rank, int tag) override;
  /// Always throws: the library receives from ranks that are named.
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  /// The host waits in its wait(). Waits for the current stream of the device, too.
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  /// On the store; every rank names those that did not come.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 protected:
  c10::intrusive_ptr<DeviceBackend> make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                              std::chrono::milliseconds timeout) override;

 private:
  /// One call: its name, and what it reads and writes.
  struct Call {
    c10d::OpType type;
    const char* what;
    std::vector<at::Tensor> reads;
    std::vector<at::Tensor> writes;
    std::chrono::milliseconds timeout;
  };
  using Body = Group::Body;

  c10::intrusive_ptr<CclWork> make_work(Call& call, c10::Device device);
  c10::intrusive_ptr<c10d::Work> run(Call call, Body body);
  c10::intrusive_ptr<c10d::Work> run_peer(Call call, int peer, bool sends, Body body);
  c10::intrusive_ptr<c10d::Work> reduce_all(c10d::OpType type, const char* what, const std::vector<at::Tensor>& tensors,
                                            const c10d::AllreduceCoalescedOptions& options);
  c10::intrusive_ptr<c10d::Work> scatter_reduced(c10d::OpType type, const char* what, const at::Tensor& output,
                                                 const std::vector<at::Tensor>& inputs,
                                                 const c10d::ReduceScatterOptions& options);
  c10::Device checked_device(const Call& call) const;
  std::chrono::milliseconds limit(std::chrono::milliseconds asked) const;

  const std::shared_ptr<Group> group_;
};

} // namespace torch_backend::ccl
