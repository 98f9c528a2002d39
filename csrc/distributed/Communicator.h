// The table of collectives: what moves data between ranks. A device library fills it (ccl/), or Gloo (gloo/).
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace torch_backend {

/// How often each function did what a group asked of it, all its communicators together. Threads: any.
class CallCounts {
 public:
  void count(const char* function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++calls_[function];
  }
  std::map<std::string, uint64_t> all() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }

 private:
  mutable std::mutex mutex_; // guards calls_
  std::map<std::string, uint64_t> calls_;
};

constexpr int kAnyRank = -1;
/// Of messages that are part of a collective: no user's.
constexpr int kCollectiveTag = std::numeric_limits<int>::max();

/// Connects this rank with others. Tensors are contiguous, one-dimensional and of its device. Calls come after what was
/// enqueued on its stream before, and what is enqueued there afterwards sees their results; the host may wait in them.
///
/// Functions that return bool answer false, with nothing done, where they are not offered, or not for the dtype or
/// operator. Other failures throw.
///
/// Threads: one at a time, except abort and error.
class Communicator {
 public:
  Communicator(int rank, int size, std::shared_ptr<CallCounts> counts)
      : rank_(rank), size_(size), counts_(std::move(counts)) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const {
    return rank_;
  }
  int size() const {
    return size_;
  }

  virtual void send(const at::Tensor& tensor, int peer, int tag) = 0;
  /// From `peer`, or kAnyRank where that is offered. Returns who it was.
  virtual int recv(const at::Tensor& tensor, int peer, int tag) = 0;
  virtual bool broadcast(const at::Tensor& tensor, int root) = 0;
  virtual bool all_gather(const at::Tensor& in, const at::Tensor& out) = 0;
  virtual bool all_reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) = 0;
  /// Only the root's tensor is changed.
  virtual bool reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op, int root) = 0;
  virtual bool reduce_scatter(const at::Tensor& in, const at::Tensor& out, c10d::ReduceOp::RedOpType op) = 0;
  /// Parts lie one after the other, with counts[rank] elements each.
  virtual bool all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_counts, const at::Tensor& out,
                          const std::vector<int64_t>& out_counts) = 0;
  /// Sends and receives in between run together. False, with nothing to end, if each is a call of its own.
  virtual bool group_begin() = 0;
  virtual void group_end() = 0;

  /// False if something is pending that goes on. What is pending fails. Any thread, also while calls are being made.
  virtual bool abort() noexcept = 0;
  /// What was found to be wrong with it, NULL while it is well.
  virtual std::exception_ptr error() noexcept {
    return nullptr;
  }

 protected:
  void count(const char* function) {
    counts_->count(function);
  }

 private:
  const int rank_;
  const int size_;
  const std::shared_ptr<CallCounts> counts_;
};

} // namespace torch_backend
