// torch.distributed for the device's tensors: maps its calls to those of a communicator.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/distributed/Group.h"

namespace torch_backend {

/// Checks arguments, and says what each collective does with its tensors; the group runs it, over the device library's own
/// collectives (ccl.1) or over Gloo.
///
/// Note [Order of collectives]
/// A collective sees what was enqueued on the caller's current stream before it, and what is enqueued after its wait()
/// sees its result, whatever stream that is on. Collectives of a group run in the order of the calls, on a stream of their
/// own, see Note [Work on the device's stream]; each direction of sends between two ranks too.
///
/// Threads: any, but calls of several threads have no order, and all ranks must make the same calls in the same order.
class DeviceBackend final : public c10d::Backend {
 public:
  /// As PyTorch has it of a backend's options.
  struct Options final : c10d::Backend::Options {
    using c10d::Backend::Options::Options;
    /// What a part of the group gets, and changes. PyTorch's own since 2.14, so no override.
    virtual c10::intrusive_ptr<c10d::Backend::Options> clone() const {
      return c10::make_intrusive<Options>(*this);
    }
  };
  /// Makes a backend for CPU tensors, of a new group's ranks.
  using MakeGloo = std::function<c10::intrusive_ptr<c10d::Backend>(const c10::intrusive_ptr<c10d::Store>&, int rank,
                                                                   int size, std::chrono::milliseconds timeout)>;

  /// `name` is what the backend is registered as; `store` the group's own. Without `make_gloo` the device library does the
  /// collectives, and no ranks are connected yet.
  DeviceBackend(std::string name, const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                std::chrono::milliseconds timeout, MakeGloo make_gloo);
  /// Waits until what was issued has ended, without Python's lock: the threads that end it may need that to let go of
  /// tensors, and whoever has the last reference (a model, say) may hold it.
  ~DeviceBackend() override;

  /// Who moves the data: "host" or "ccl.1".
  const char* path() const {
    return group_->is_over_gloo() ? "host" : "ccl.1";
  }
  /// How often each function of the communicators did what this group asked of them.
  std::map<std::string, uint64_t> slot_calls() const {
    return group_->slot_calls();
  }

  const std::string getBackendName() const override {
    return name_;
  }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return options_;
  }
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// COMM_ERROR from the first failure on.
  c10d::ErrorType getError() override;
  void eagerConnectSingleDevice(at::Device device) override;
  /// Every piece of work that has not ended fails. Later calls are refused.
  void abort() override;
  /// Waits until what was issued has ended, and frees the communicators; part of destroy_process_group().
  void shutdown() override;

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
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
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
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options) override;
  /// The device library does not look at tags: messages between two ranks arrive in the order in which they are sent.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int rank, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int rank, int tag) override;
  /// Over Gloo only: device libraries receive from ranks that are named.
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  /// The host waits in its wait(). Waits for the current stream of the device, too.
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  /// On the store; every rank names those that did not come.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  /// Every rank counts from 0: there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  /// How many collectives were called; sends and receives do not count.
  uint64_t getSequenceNumberForGroup() override;

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

  c10::intrusive_ptr<DeviceWork> make_work(Call& call, c10::Device device);
  /// On the device of the call's tensors, or on `device`.
  c10::intrusive_ptr<c10d::Work> run(Call call, Body body, std::optional<c10::Device> device = std::nullopt);
  c10::intrusive_ptr<c10d::Work> started(const c10::intrusive_ptr<DeviceWork>& work);
  c10::intrusive_ptr<c10d::Work> run_peer(Call call, int peer, int tag);
  c10::intrusive_ptr<c10d::Work> reduce_all(c10d::OpType type, const char* what, const std::vector<at::Tensor>& tensors,
                                            const c10d::AllreduceCoalescedOptions& options);
  c10::intrusive_ptr<c10d::Work> scatter_reduced(c10d::OpType type, const char* what, const at::Tensor& output,
                                                 const std::vector<at::Tensor>& inputs,
                                                 const c10d::ReduceScatterOptions& options);
  c10::Device checked_device(const Call& call) const;
  std::chrono::milliseconds timeout() const;
  std::chrono::milliseconds limit(std::chrono::milliseconds asked) const;

  const std::string name_;
  const c10::intrusive_ptr<Options> options_;
  const MakeGloo make_gloo_;
  const std::shared_ptr<Group> group_;

  mutable std::mutex mutex_; // guards what follows, and options_->timeout
  uint64_t num_collectives_ = 0;
};

} // namespace torch_backend
