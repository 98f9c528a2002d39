#include "csrc/distributed/gloo/GlooCommunicator.h"

#include <utility>

#include <ATen/ops/empty.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/native/Copy.h"
#include "csrc/ops/tensor/Alias.h"

namespace torch_backend::gloo {
namespace {

using c10d::ReduceOp;
using Tensors = std::vector<at::Tensor>;

bool reduces(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
    case c10::kDouble:
    case c10::kHalf:
    case c10::kBFloat16:
    case c10::kChar:
    case c10::kByte:
    case c10::kInt:
    case c10::kLong:
      return true;
    default:
      return false;
  }
}

/// Values that are only moved: every dtype goes.
at::Tensor bytes_of(const at::Tensor& host) {
  return host.view(c10::kByte);
}

std::vector<int64_t> in_bytes(std::vector<int64_t> counts, const at::Tensor& tensor) {
  for (auto& count : counts) {
    count *= tensor.element_size();
  }
  return counts;
}

class Busy {
 public:
  explicit Busy(std::atomic<bool>& flag) : flag_(flag) {
    flag_.store(true);
  }
  ~Busy() {
    flag_.store(false);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& flag_;
};

} // namespace

bool uses_device_memory() {
  auto& api = device_api();
  return api.host_access() && api.host_coherent();
}

GlooCommunicator::GlooCommunicator(Stream stream, c10::intrusive_ptr<c10d::Backend> gloo,
                                   std::shared_ptr<CallCounts> counts)
    : Communicator(gloo->getRank(), gloo->getSize(), std::move(counts)), stream_(stream), gloo_(std::move(gloo)) {}

// ---- memory ----

at::Tensor GlooCommunicator::for_result(const at::Tensor& tensor) {
  return uses_device_memory() ? make_cpu_alias(tensor)
                              : at::empty(tensor.sizes(), tensor.options().device(c10::kCPU).pinned_memory(true));
}

at::Tensor GlooCommunicator::to_host(const at::Tensor& tensor) {
  auto host = for_result(tensor);
  if (!uses_device_memory()) {
    copy_tensor(host, tensor, /*non_blocking=*/true);
  }
  return host;
}

void GlooCommunicator::deliver(const at::Tensor& tensor, const at::Tensor& host) {
  if (!uses_device_memory()) {
    copy_tensor(tensor, host, /*non_blocking=*/true);
  }
}

// ---- collectives ----

void GlooCommunicator::run(const char* function, const std::function<WorkPtr(c10d::Backend&)>& issue) {
  stream_.synchronize();
  const Busy busy(is_busy_);
  issue(*gloo_)->wait();
  count(function);
}

bool GlooCommunicator::broadcast(const at::Tensor& tensor, int root) {
  Tensors host{bytes_of(rank() == root ? to_host(tensor) : for_result(tensor))};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  run("broadcast", [&](c10d::Backend& gloo) { return gloo.broadcast(host, options); });
  if (rank() != root) {
    deliver(tensor, host.front().view(tensor.scalar_type()));
  }
  return true;
}

bool GlooCommunicator::all_gather(const at::Tensor& in, const at::Tensor& out) {
  auto from = bytes_of(to_host(in));
  const auto result = for_result(out);
  auto to = bytes_of(result);
  run("all_gather", [&](c10d::Backend& gloo) { return gloo._allgather_base(to, from, {}); });
  deliver(out, result);
  return true;
}

bool GlooCommunicator::all_reduce(const at::Tensor& tensor, ReduceOp::RedOpType op) {
  if (!reduces(tensor.scalar_type()) || op == ReduceOp::AVG) {
    return false;
  }
  Tensors host{to_host(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  run("all_reduce", [&](c10d::Backend& gloo) { return gloo.allreduce(host, options); });
  deliver(tensor, host.front());
  return true;
}

bool GlooCommunicator::reduce(const at::Tensor& tensor, ReduceOp::RedOpType op, int root) {
  if (!reduces(tensor.scalar_type()) || op == ReduceOp::AVG) {
    return false;
  }
  Tensors host{to_host(tensor)};
  if (rank() != root && uses_device_memory()) {
    stream_.synchronize();
    host.front() = host.front().clone(); // Gloo computes in it, in every rank
  }
  c10d::ReduceOptions options;
  options.reduceOp = op;
  options.rootRank = root;
  run("reduce", [&](c10d::Backend& gloo) { return gloo.reduce(host, options); });
  if (rank() == root) {
    deliver(tensor, host.front());
  }
  return true;
}

bool GlooCommunicator::reduce_scatter(const at::Tensor& /*in*/, const at::Tensor& /*out*/, ReduceOp::RedOpType /*op*/) {
  return false; // Gloo would move as much as in an all_reduce
}

bool GlooCommunicator::all_to_all(const at::Tensor& in, const std::vector<int64_t>& in_counts, const at::Tensor& out,
                                  const std::vector<int64_t>& out_counts) {
  auto from = bytes_of(to_host(in));
  const auto result = for_result(out);
  auto to = bytes_of(result);
  auto sent = in_bytes(in_counts, in);
  auto received = in_bytes(out_counts, out);
  run("all_to_all", [&](c10d::Backend& gloo) { return gloo.alltoall_base(to, from, received, sent, {}); });
  deliver(out, result);
  return true;
}

// ---- messages ----

void GlooCommunicator::finish(const Message& message) {
  const Busy busy(is_busy_);
  message.work->wait();
  if (message.tensor.defined()) {
    deliver(message.tensor, message.host.front().view(message.tensor.scalar_type()));
  }
}

void GlooCommunicator::send(const at::Tensor& tensor, int peer, int tag) {
  Message message{{}, {}, {bytes_of(to_host(tensor))}};
  stream_.synchronize();
  message.work = gloo_->send(message.host, peer, tag);
  count("send");
  if (is_grouped_) {
    messages_.push_back(std::move(message));
  } else {
    finish(message);
  }
}

int GlooCommunicator::recv(const at::Tensor& tensor, int peer, int tag) {
  Message message{{}, tensor, {bytes_of(for_result(tensor))}};
  stream_.synchronize();
  message.work = peer == kAnyRank ? gloo_->recvAnysource(message.host, tag) : gloo_->recv(message.host, peer, tag);
  count("recv");
  if (is_grouped_) {
    messages_.push_back(std::move(message));
    return peer;
  }
  finish(message);
  return peer == kAnyRank ? message.work->sourceRank() : peer;
}

bool GlooCommunicator::group_begin() {
  is_grouped_ = true;
  return true;
}

void GlooCommunicator::group_end() {
  is_grouped_ = false;
  for (const auto& message : std::exchange(messages_, {})) {
    finish(message);
  }
}

} // namespace torch_backend::gloo
