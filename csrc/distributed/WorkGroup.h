// Several pieces of work as one: what was issued between start and end of coalescing.
#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace torch_backend {

/// Complete when all of it is. wait() waits for one after the other.
class WorkGroup final : public c10d::Work {
 public:
  WorkGroup(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  void abort() override;
  /// Of all parts.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
};

} // namespace torch_backend
