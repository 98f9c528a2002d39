// A process group's backend for the device's tensors: what does not depend on who moves the data.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/distributed/DeviceWork.h"

namespace torch_backend {

/// Note [Order of collectives]
/// A collective sees what was enqueued on the caller's current stream before it, and what is enqueued after its wait()
/// sees its result, whatever stream that is on. Collectives of a group run in the order of the calls, sends and receives
/// as they are matched.
///
/// Threads: any, but calls of several threads have no order, and all ranks must make the same calls in the same order.
class DeviceBackend : public c10d::Backend {
 public:
  /// As PyTorch has it of a backend's options.
  struct Options final : c10d::Backend::Options {
    using c10d::Backend::Options::Options;
  };

  /// `name` is what the backend is registered as.
  DeviceBackend(std::string name, int rank, int size, std::chrono::milliseconds timeout);

  /// Who moves the data: "host" or "ccl.1".
  virtual const char* path() const = 0;

  const std::string getBackendName() const override {
    return name_;
  }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return options_;
  }
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// COMM_ERROR from the first failure on.
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

  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
                                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override;

  /// Every rank counts from 0: there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  /// How many collectives were called; sends and receives do not count.
  uint64_t getSequenceNumberForGroup() override;

 protected:
  /// The backend of a part of this group, in which this process is `rank` of `size`.
  virtual c10::intrusive_ptr<DeviceBackend> make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                      std::chrono::milliseconds timeout) = 0;

  std::chrono::milliseconds timeout() const;
  uint64_t next_sequence_number();
  /// Before a piece of work starts: refuses it in an aborted group, lets abort() and getError() know of it.
  void remember(const c10::intrusive_ptr<DeviceWork>& work);
  /// Once it has started: `work`, which is part of what the calling thread coalesces, if it does.
  c10::intrusive_ptr<c10d::Work> started(const c10::intrusive_ptr<DeviceWork>& work);
  /// From now on remember() refuses.
  void refuse_more();
  /// What has been started and has not been forgotten: some of it has ended.
  std::vector<c10::intrusive_ptr<DeviceWork>> running();
  /// The device whose current stream a barrier waits for.
  static c10::Device device_of(const c10d::BarrierOptions& options);

  const std::string name_;

 private:
  const c10::intrusive_ptr<Options> options_;

  mutable std::mutex mutex_; // guards what follows, and options_->timeout
  bool aborted_ = false;
  bool failed_ = false;
  uint64_t num_collectives_ = 0;
  std::vector<c10::weak_intrusive_ptr<DeviceWork>> running_; // and some that have ended
};

} // namespace torch_backend
