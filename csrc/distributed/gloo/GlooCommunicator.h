// A communicator over Gloo, which moves data between hosts: for devices without collectives of their own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/core/Stream.h"
#include "csrc/distributed/Communicator.h"

namespace torch_backend::gloo {

/// Whether the host can use the device's memory at any time. Then nothing is copied for Gloo; elsewhere tensors go through
/// page-locked memory.
bool uses_device_memory();

/// Each call waits on the host for what is on its stream, and until Gloo has done it; copies back are enqueued. The
/// communicators of a group share one backend for CPU tensors, and messages are told apart by their tags.
class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(Stream stream, c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<CallCounts> counts);

  void send(const at::Tensor& tensor, int peer, int tag) override;
  int recv(const at::Tensor& tensor, int peer, int tag) override;
  bool broadcast(const at::Tensor& tensor, int root) override;
  bool all_gather(const at::Tensor& in, const at::Tensor& out) override;
  bool all_reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) override;
  bool reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op, int root) override;
  bool reduce_scatter(const at::Tensor& in, const at::Tensor& out, c10d::ReduceOp::RedOpType op) override;
  bool all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_counts, const at::Tensor& out,
                  const std::vector<int64_t>& out_counts) override;
  bool group_begin() override;
  void group_end() override;
  /// Gloo ends what it is doing with its own time-out.
  bool abort() noexcept override {
    return !is_busy_.load();
  }

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct Message {
    WorkPtr work;
    at::Tensor tensor; // where what is received belongs
    std::vector<at::Tensor> host;
  };

  at::Tensor to_host(const at::Tensor& tensor);
  at::Tensor for_result(const at::Tensor& tensor);
  void deliver(const at::Tensor& tensor, const at::Tensor& host);
  void run(const char* function, const std::function<WorkPtr(c10d::Backend&)>& issue);
  void finish(const Message& message);

  const Stream stream_;
  const c10::intrusive_ptr<c10d::Backend> gloo_;
  std::atomic<bool> is_busy_{false};
  bool is_grouped_ = false;
  std::vector<Message> messages_; // of the open group
};

} // namespace torch_backend::gloo
