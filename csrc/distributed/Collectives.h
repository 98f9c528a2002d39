// Collectives of one communicator: those that it offers, and what it leaves out.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "csrc/distributed/Communicator.h"
#include "csrc/distributed/Reduction.h"

namespace torch_backend {

/// Note [Collectives from sends and receives]
/// Where the communicator has no collective, or not for a dtype or operator, it is built from sends and receives, and
/// reduced by the device's own operators. A send may block its stream until it is matched. So ranks exchange data in
/// rounds: in each one, every rank has one partner at most, and of two partners the lower one sends first. All ranks go
/// through the rounds in the same order, so that the earliest open exchange can always take place. Where the communicator
/// groups calls, an exchange is one group, and the rounds only its order.
///
/// Takes one-dimensional contiguous tensors of one dtype (as_reduced for reductions). Enqueues on the communicator's
/// stream, which is the current one. Results are the same on all ranks, bit by bit: parts are combined in the order of
/// ranks.
class Collectives {
 public:
  explicit Collectives(Communicator& comm) : comm_(comm) {}

  void send(const at::Tensor& tensor, int peer, int tag = kCollectiveTag);
  /// Returns who has sent it.
  int recv(const at::Tensor& tensor, int peer, int tag = kCollectiveTag);
  void broadcast(const at::Tensor& tensor, int root);
  /// `out` has the parts of all ranks, one after the other.
  void all_gather(const at::Tensor& in, const at::Tensor& out);
  /// `out` is used by the root.
  void gather(const at::Tensor& in, const std::vector<at::Tensor>& out, int root);
  /// `in` is used by the root.
  void scatter(const std::vector<at::Tensor>& in, const at::Tensor& out, int root);
  void all_reduce(const at::Tensor& tensor, const Reduction& reduction);
  /// Only the root's `tensor` is a result; those of the others are used as memory.
  void reduce(const at::Tensor& tensor, const Reduction& reduction, int root);
  /// Changes `in` if the reduction multiplies.
  void reduce_scatter(const at::Tensor& in, const at::Tensor& out, const Reduction& reduction);
  /// Parts lie one after the other, with counts[rank] elements each.
  void all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_counts, const at::Tensor& out,
                  const std::vector<int64_t>& out_counts);
  /// sent[rank] goes to that rank, received[rank] comes from it.
  void exchange(const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received);
  void barrier(const at::TensorOptions& device);

 private:
  std::vector<int64_t> slices_of(int64_t numel) const;
  at::Tensor combined_slice(const at::Tensor& values, const std::vector<int64_t>& slices, const Reduction& reduction);
  at::Tensor combine(const at::Tensor& parts, const Reduction& reduction) const;
  template <typename Call>
  bool by_communicator(const at::Tensor& values, const Reduction& reduction, const std::vector<at::Tensor>& results,
                       Call call);

  Communicator& comm_;
};

} // namespace torch_backend
