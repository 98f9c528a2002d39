#include "csrc/distributed/Collectives.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Logging.h>

namespace torch_backend {
namespace {

using c10d::ReduceOp;

/// Below this many bytes of all ranks together, one round of whole tensors is faster than two of slices.
constexpr int64_t kSmallBytes = 64 << 10;

/// Sends and receives that run together, where the communicator groups calls.
class CallGroup {
 public:
  explicit CallGroup(Communicator& comm) : comm_(comm), open_(comm.group_begin()) {}
  /// Without end(): an error is on its way, and the group ends whatever it answers.
  ~CallGroup() {
    try {
      end();
    } catch (const std::exception& error) {
      LOG(WARNING) << "After a failure: " << error.what();
    }
  }
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;
  void end() {
    if (std::exchange(open_, false)) {
      comm_.group_end();
    }
  }

 private:
  Communicator& comm_;
  bool open_;
};

std::vector<at::Tensor> split(const at::Tensor& tensor, const std::vector<int64_t>& counts) {
  return tensor.split_with_sizes(counts);
}

} // namespace

// ---- data that is moved ----

void Collectives::send(const at::Tensor& tensor, int peer, int tag) {
  if (tensor.numel() > 0) {
    comm_.send(tensor, peer, tag);
  }
}

int Collectives::recv(const at::Tensor& tensor, int peer, int tag) {
  return tensor.numel() > 0 ? comm_.recv(tensor, peer, tag) : peer;
}

void Collectives::exchange(const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received) {
  const int rank = comm_.rank();
  const int size = comm_.size();
  const auto own = static_cast<std::size_t>(rank);
  if (received[own].numel() > 0 && !received[own].is_same(sent[own])) {
    received[own].copy_(sent[own]);
  }
  CallGroup group(comm_);
  for (int round = 0; round < size; ++round) {
    const int peer = (round - rank + size) % size; // whose partner in this round is this rank
    const auto other = static_cast<std::size_t>(peer);
    if (rank < peer) {
      send(sent[other], peer);
      recv(received[other], peer);
    } else if (rank > peer) {
      recv(received[other], peer);
      send(sent[other], peer);
    }
  }
  group.end();
}

void Collectives::broadcast(const at::Tensor& tensor, int root) {
  if (tensor.numel() == 0 || comm_.broadcast(tensor, root)) {
    return;
  }
  // Along a tree: rank r from the root on gets it from r without its lowest bit.
  const int size = comm_.size();
  const int place = (comm_.rank() - root + size) % size;
  int bit = 1;
  while (bit < size && !(place & bit)) {
    bit <<= 1;
  }
  if (place != 0) {
    recv(tensor, (place - bit + root) % size);
  }
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (place + bit < size) {
      send(tensor, (place + bit + root) % size);
    }
  }
}

void Collectives::all_gather(const at::Tensor& in, const at::Tensor& out) {
  if (in.numel() == 0 || comm_.all_gather(in, out)) {
    return;
  }
  const auto size = static_cast<std::size_t>(comm_.size());
  exchange(std::vector<at::Tensor>(size, in), split(out, std::vector<int64_t>(size, in.numel())));
}

void Collectives::gather(const at::Tensor& in, const std::vector<at::Tensor>& out, int root) {
  if (comm_.rank() != root) {
    send(in, root);
    return;
  }
  CallGroup group(comm_);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank != root) {
      recv(out[static_cast<std::size_t>(rank)], rank);
    }
  }
  group.end();
  out[static_cast<std::size_t>(root)].copy_(in);
}

void Collectives::scatter(const std::vector<at::Tensor>& in, const at::Tensor& out, int root) {
  if (comm_.rank() != root) {
    recv(out, root);
    return;
  }
  CallGroup group(comm_);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank != root) {
      send(in[static_cast<std::size_t>(rank)], rank);
    }
  }
  group.end();
  out.copy_(in[static_cast<std::size_t>(root)]);
}

void Collectives::all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_counts, const at::Tensor& out,
                             const std::vector<int64_t>& out_counts) {
  if (!comm_.all_to_all(in, in_counts, out, out_counts)) {
    exchange(split(in, in_counts), split(out, out_counts));
  }
}

void Collectives::barrier(const at::TensorOptions& device) {
  all_reduce(at::ones({1}, device.dtype(c10::kFloat)),
             Reduction("barrier", ReduceOp(ReduceOp::SUM), c10::kFloat, comm_.size()));
}

// ---- reductions ----

template <typename Call>
bool Collectives::by_communicator(const at::Tensor& values, const Reduction& reduction,
                                  const std::vector<at::Tensor>& results, Call call) {
  if (reduction.divides() && values.is_floating_point() && call(ReduceOp::AVG)) {
    return true;
  }
  if (!call(reduction.op().op_)) {
    return false;
  }
  if (reduction.divides()) {
    reduction.divide(results);
  }
  return true;
}

/// What this rank reduces of a tensor when every rank does a part: as even as can be.
std::vector<int64_t> Collectives::slices_of(int64_t numel) const {
  const int64_t size = comm_.size();
  std::vector<int64_t> slices;
  for (int64_t rank = 0; rank < size; ++rank) {
    slices.push_back(numel / size + (rank < numel % size ? 1 : 0));
  }
  return slices;
}

at::Tensor Collectives::combine(const at::Tensor& parts, const Reduction& reduction) const {
  const auto type = parts.scalar_type();
  const auto wide = computed_as(type);
  auto result = at::empty({parts.numel() / comm_.size()}, parts.options().dtype(wide));
  if (result.numel() > 0) {
    reduction.combine(wide == type ? parts : parts.to(wide), result);
    if (reduction.divides()) {
      reduction.divide({result});
    }
  }
  return wide == type ? result : result.to(type);
}

/// The reduced slice of this rank.
at::Tensor Collectives::combined_slice(const at::Tensor& values, const std::vector<int64_t>& slices,
                                       const Reduction& reduction) {
  const auto size = static_cast<std::size_t>(comm_.size());
  const int64_t mine = slices[static_cast<std::size_t>(comm_.rank())];
  const auto parts = at::empty({mine * comm_.size()}, values.options());
  all_to_all(values, slices, parts, std::vector<int64_t>(size, mine));
  return combine(parts, reduction);
}

void Collectives::all_reduce(const at::Tensor& tensor, const Reduction& reduction) {
  if (tensor.numel() == 0) {
    return;
  }
  if (reduction.multiplies()) {
    reduction.multiply({tensor});
  }
  if (by_communicator(tensor, reduction, {tensor},
                      [&](ReduceOp::RedOpType op) { return comm_.all_reduce(tensor, op); })) {
    return;
  }
  if (static_cast<int64_t>(tensor.nbytes()) * comm_.size() <= kSmallBytes) {
    const auto parts = at::empty({tensor.numel() * comm_.size()}, tensor.options());
    all_gather(tensor, parts);
    tensor.copy_(combine(parts, reduction));
    return;
  }
  const auto slices = slices_of(tensor.numel());
  const auto reduced = combined_slice(tensor, slices, reduction);
  exchange(std::vector<at::Tensor>(slices.size(), reduced), split(tensor, slices));
}

void Collectives::reduce(const at::Tensor& tensor, const Reduction& reduction, int root) {
  if (tensor.numel() == 0) {
    return;
  }
  if (reduction.multiplies()) {
    reduction.multiply({tensor});
  }
  const bool is_root = comm_.rank() == root;
  if (by_communicator(tensor, reduction, is_root ? std::vector<at::Tensor>{tensor} : std::vector<at::Tensor>{},
                      [&](ReduceOp::RedOpType op) { return comm_.reduce(tensor, op, root); })) {
    return;
  }
  const auto slices = slices_of(tensor.numel());
  gather(combined_slice(tensor, slices, reduction), is_root ? split(tensor, slices) : std::vector<at::Tensor>{}, root);
}

void Collectives::reduce_scatter(const at::Tensor& in, const at::Tensor& out, const Reduction& reduction) {
  if (out.numel() == 0) {
    return;
  }
  if (reduction.multiplies()) {
    reduction.multiply({in});
  }
  if (by_communicator(in, reduction, {out},
                      [&](ReduceOp::RedOpType op) { return comm_.reduce_scatter(in, out, op); })) {
    return;
  }
  out.copy_(combined_slice(in, std::vector<int64_t>(static_cast<std::size_t>(comm_.size()), out.numel()), reduction));
}

} // namespace torch_backend
