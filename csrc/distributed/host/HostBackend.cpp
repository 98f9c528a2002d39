#include "csrc/distributed/host/HostBackend.h"

#include <utility>

#include <ATen/ops/cat.h>

#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"
#include "csrc/distributed/Arguments.h"
#include "csrc/distributed/Reduction.h"

namespace torch_backend {
namespace {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Use = HostTensors::Use;

/// The stand-ins of one reduction's inputs, which PREMUL_SUM must not change in place, and of its outputs.
std::vector<at::Tensor> read_for(const Reduction& reduction, HostTensors& tensors,
                                 const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> stand_ins;
  for (const auto& input : inputs) {
    stand_ins.push_back(reduction.multiplies() ? tensors.read_private(input) : tensors.read(input));
  }
  return stand_ins;
}

void add_steps(const Reduction& reduction, HostTensors& tensors, const std::vector<at::Tensor>& inputs,
               const std::vector<at::Tensor>& outputs) {
  if (reduction.multiplies()) {
    tensors.before([reduction, inputs] { reduction.multiply(inputs); });
  }
  if (reduction.divides()) {
    tensors.after([reduction, outputs] { reduction.divide(outputs); });
  }
}

} // namespace

HostBackend::HostBackend(std::string name, c10::intrusive_ptr<c10d::Backend> transport,
                         std::chrono::milliseconds timeout, MakeTransport make_transport)
    : DeviceBackend(std::move(name), transport->getRank(), transport->getSize(), timeout),
      transport_(std::move(transport)),
      make_transport_(std::move(make_transport)) {}

HostBackend::~HostBackend() {
  const WithoutInterpreterLock unlocked;
  issuing_.end(); // its tasks use the transport
  transport_.reset();
}

// ---- how a collective runs ----

std::shared_ptr<HostTensors> HostBackend::tensors_for(const char* what, Use use) const {
  return std::make_shared<HostTensors>(what, use);
}

WorkPtr HostBackend::start(const c10::intrusive_ptr<HostWork>& work, const std::shared_ptr<HostTensors>& tensors,
                           Issue issue) {
  remember(work);
  tensors->take();
  if (!device_api().async()) {
    tensors->prepare();
    work->follow(issue(*transport_));
  } else {
    issuing_.add([this, work, tensors, issue = std::move(issue)] {
      try {
        tensors->await();
        tensors->prepare();
        work->follow(issue(*transport_));
      } catch (...) {
        work->fail(std::current_exception());
      }
    });
  }
  return started(work);
}

WorkPtr HostBackend::run(OpType type, const char* what, std::shared_ptr<HostTensors> tensors, Issue issue) {
  auto work = c10::make_intrusive<HostCollectiveWork>(rank_, size_, type, what, tensors);
  work->set_sequence_number(next_sequence_number());
  return start(work, tensors, std::move(issue));
}

WorkPtr HostBackend::run_peer(OpType type, const char* what, std::shared_ptr<HostTensors> tensors, Issue issue) {
  return start(c10::make_intrusive<HostPeerWork>(rank_, size_, type, what, tensors), tensors, std::move(issue));
}

// ---- the group ----

void HostBackend::setTimeout(std::chrono::milliseconds timeout) {
  DeviceBackend::setTimeout(timeout);
  transport_->setTimeout(timeout);
}

c10::intrusive_ptr<DeviceBackend> HostBackend::make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                         int size, std::chrono::milliseconds timeout) {
  return c10::make_intrusive<HostBackend>(name_, make_transport_(store, rank, size, timeout), timeout, make_transport_);
}

// ---- collectives ----

WorkPtr HostBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  constexpr auto kWhat = "broadcast";
  auto host = tensors_for(kWhat, Use::kMove);
  only(kWhat, tensors);
  auto stand_ins = options.rootRank == rank_ ? host->read(tensors) : host->write(tensors);
  return run(OpType::BROADCAST, kWhat, host, [stand_ins, options](c10d::Backend& transport) mutable {
    return transport.broadcast(stand_ins, options);
  });
}

WorkPtr HostBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  constexpr auto kWhat = "all_reduce";
  const Reduction reduction(kWhat, options.reduceOp, only(kWhat, tensors).scalar_type(), size_);
  auto host = tensors_for(kWhat, Use::kReduce);
  auto stand_ins = host->update(tensors);
  add_steps(reduction, *host, stand_ins, stand_ins);
  auto reduce = options;
  reduce.reduceOp = reduction.op();
  return run(OpType::ALLREDUCE, kWhat, host,
             [stand_ins, reduce](c10d::Backend& transport) mutable { return transport.allreduce(stand_ins, reduce); });
}

WorkPtr HostBackend::allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                         const c10d::AllreduceCoalescedOptions& options) {
  constexpr auto kWhat = "all_reduce_coalesced";
  const auto& model = first(kWhat, tensors);
  check_same_dtype(kWhat, tensors, model);
  const Reduction reduction(kWhat, options.reduceOp, model.scalar_type(), size_);
  auto host = tensors_for(kWhat, Use::kReduce);
  auto stand_ins = host->update(tensors);
  add_steps(reduction, *host, stand_ins, stand_ins);
  auto reduce = options;
  reduce.reduceOp = reduction.op();
  return run(OpType::ALLREDUCE_COALESCED, kWhat, host, [stand_ins, reduce](c10d::Backend& transport) mutable {
    return transport.allreduce_coalesced(stand_ins, reduce);
  });
}

WorkPtr HostBackend::reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) {
  constexpr auto kWhat = "reduce";
  const Reduction reduction(kWhat, options.reduceOp, only(kWhat, tensors).scalar_type(), size_);
  auto host = tensors_for(kWhat, Use::kReduce);
  // The transport uses the tensor as its buffer in every rank; only the root's is a result.
  const bool is_root = options.rootRank == rank_;
  std::vector<at::Tensor> stand_ins =
      is_root ? host->update(tensors) : std::vector<at::Tensor>{host->read_private(tensors.front())};
  add_steps(reduction, *host, stand_ins, is_root ? stand_ins : std::vector<at::Tensor>{});
  auto reduce = options;
  reduce.reduceOp = reduction.op();
  return run(OpType::REDUCE, kWhat, host,
             [stand_ins, reduce](c10d::Backend& transport) mutable { return transport.reduce(stand_ins, reduce); });
}

WorkPtr HostBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                               const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather";
  const auto& input = only(kWhat, inputs);
  check_same_dtype(kWhat, flatten(outputs), input);
  auto host = tensors_for(kWhat, Use::kMove);
  auto from = host->read(inputs);
  auto to = host->write(outputs);
  return run(OpType::ALLGATHER, kWhat, host,
             [to, from, options](c10d::Backend& transport) mutable { return transport.allgather(to, from, options); });
}

WorkPtr HostBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather_into_tensor";
  check_same_dtype(kWhat, {output}, input);
  check_numel(kWhat, output, input, size_);
  auto host = tensors_for(kWhat, Use::kMove);
  auto from = host->read(input).view({-1}); // whatever shapes hold the elements
  auto to = host->write(output).view({-1});
  return run(OpType::_ALLGATHER_BASE, kWhat, host, [to, from, options](c10d::Backend& transport) mutable {
    return transport._allgather_base(to, from, options);
  });
}

WorkPtr HostBackend::allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                         const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather_coalesced";
  auto host = tensors_for(kWhat, Use::kMove);
  auto from = host->read(inputs);
  auto to = host->write(outputs);
  return run(OpType::ALLGATHER_COALESCED, kWhat, host, [to, from, options](c10d::Backend& transport) mutable {
    return transport.allgather_coalesced(to, from, options);
  });
}

WorkPtr HostBackend::gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                            const c10d::GatherOptions& options) {
  constexpr auto kWhat = "gather";
  check_same_dtype(kWhat, flatten(outputs), only(kWhat, inputs));
  auto host = tensors_for(kWhat, Use::kMove);
  auto from = host->read(inputs);
  auto to = host->write(outputs);
  return run(OpType::GATHER, kWhat, host,
             [to, from, options](c10d::Backend& transport) mutable { return transport.gather(to, from, options); });
}

WorkPtr HostBackend::scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                             const c10d::ScatterOptions& options) {
  constexpr auto kWhat = "scatter";
  check_same_dtype(kWhat, flatten(inputs), only(kWhat, outputs));
  auto host = tensors_for(kWhat, Use::kMove);
  auto to = host->write(outputs);
  auto from = host->read(inputs);
  return run(OpType::SCATTER, kWhat, host,
             [to, from, options](c10d::Backend& transport) mutable { return transport.scatter(to, from, options); });
}

// Every rank gets the parts that are meant for it and reduces them: half of what an all_reduce would move.
WorkPtr HostBackend::scatter_and_combine(OpType type, const char* what, const at::Tensor& output,
                                         const std::vector<at::Tensor>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const Reduction reduction(what, options.reduceOp, output.scalar_type(), size_);
  auto host = tensors_for(what, Use::kReduce);
  const auto to = host->write(output);
  const auto from = read_for(reduction, *host, inputs);
  if (reduction.multiplies()) {
    host->before([reduction, from] { reduction.multiply(from); });
  }
  auto issue = [host, reduction, to, from, timeout = options.timeout](c10d::Backend& transport) {
    std::vector<at::Tensor> flat;
    std::vector<int64_t> sent;
    for (const auto& tensor : from) {
      flat.push_back(tensor.view({-1}));
      sent.push_back(tensor.numel() / (from.size() == 1 ? transport.getSize() : 1));
    }
    sent.resize(static_cast<std::size_t>(transport.getSize()), sent.front());
    at::Tensor all = flat.size() == 1 ? flat.front() : at::cat(flat);
    std::vector<int64_t> received(sent.size(), to.numel());
    at::Tensor parts = to.new_empty({to.numel() * transport.getSize()});
    host->after([reduction, parts, to] {
      reduction.combine(parts, to);
      if (reduction.divides()) {
        reduction.divide({to});
      }
    });
    c10d::AllToAllOptions exchange;
    exchange.timeout = timeout;
    return transport.alltoall_base(parts, all, received, sent, exchange);
  };
  return run(type, what, host, std::move(issue));
}

WorkPtr HostBackend::reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                    const c10d::ReduceScatterOptions& options) {
  constexpr auto kWhat = "reduce_scatter";
  const auto& output = only(kWhat, outputs);
  check_reduce_scatter(kWhat, output, inputs, rank_, size_);
  return scatter_and_combine(OpType::REDUCE_SCATTER, kWhat, output, inputs.front(), options);
}

WorkPtr HostBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::ReduceScatterOptions& options) {
  constexpr auto kWhat = "reduce_scatter_tensor";
  check_same_dtype(kWhat, {input}, output);
  check_numel(kWhat, input, output, size_);
  return scatter_and_combine(OpType::_REDUCE_SCATTER_BASE, kWhat, output, {input}, options);
}

WorkPtr HostBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                   std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  constexpr auto kWhat = "all_to_all_single";
  check_same_dtype(kWhat, {output}, input);
  auto host = tensors_for(kWhat, Use::kMove);
  auto from = host->read(input);
  auto to = host->write(output);
  return run(OpType::ALLTOALL_BASE, kWhat, host,
             [to, from, output_splits, input_splits, options](c10d::Backend& transport) mutable {
               return transport.alltoall_base(to, from, output_splits, input_splits, options);
             });
}

WorkPtr HostBackend::alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                              const c10d::AllToAllOptions& options) {
  constexpr auto kWhat = "all_to_all";
  check_one_per_rank(kWhat, inputs, size_);
  check_one_per_rank(kWhat, outputs, size_);
  check_same_dtype(kWhat, inputs, inputs.front());
  check_same_dtype(kWhat, outputs, inputs.front());
  // As one message per rank, of a tensor that holds all: not every version of the transport takes lists.
  auto host = tensors_for(kWhat, Use::kMove);
  auto from = host->read(inputs);
  auto to = host->write(outputs);
  auto issue = [host, to, from, options](c10d::Backend& transport) {
    const auto flat = [](const std::vector<at::Tensor>& tensors, std::vector<int64_t>* sizes) {
      std::vector<at::Tensor> parts;
      for (const auto& tensor : tensors) {
        parts.push_back(tensor.reshape({-1}));
        sizes->push_back(tensor.numel());
      }
      return parts;
    };
    std::vector<int64_t> sent;
    std::vector<int64_t> received;
    at::Tensor all_from = at::cat(flat(from, &sent));
    const auto parts = flat(to, &received);
    int64_t total = 0;
    for (const auto size : received) {
      total += size;
    }
    at::Tensor all_to = all_from.new_empty({total});
    host->after([parts, all_to, received] {
      const auto pieces = all_to.split_with_sizes(received);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i].copy_(pieces[i]);
      }
    });
    return transport.alltoall_base(all_to, all_from, received, sent, options);
  };
  return run(OpType::ALLTOALL, kWhat, host, std::move(issue));
}

WorkPtr HostBackend::send(std::vector<at::Tensor>& tensors, int rank, int tag) {
  constexpr auto kWhat = "send";
  only(kWhat, tensors);
  auto host = tensors_for(kWhat, Use::kMove);
  auto stand_ins = host->read(tensors);
  return run_peer(OpType::SEND, kWhat, host, [stand_ins, rank, tag](c10d::Backend& transport) mutable {
    return transport.send(stand_ins, rank, tag);
  });
}

WorkPtr HostBackend::recv(std::vector<at::Tensor>& tensors, int rank, int tag) {
  constexpr auto kWhat = "recv";
  only(kWhat, tensors);
  auto host = tensors_for(kWhat, Use::kMove);
  auto stand_ins = host->write(tensors);
  return run_peer(OpType::RECV, kWhat, host, [stand_ins, rank, tag](c10d::Backend& transport) mutable {
    return transport.recv(stand_ins, rank, tag);
  });
}

WorkPtr HostBackend::recvAnysource(std::vector<at::Tensor>& tensors, int tag) {
  constexpr auto kWhat = "recv from any rank";
  only(kWhat, tensors);
  auto host = tensors_for(kWhat, Use::kMove);
  auto stand_ins = host->write(tensors);
  return run_peer(OpType::RECVANYSOURCE, kWhat, host, [stand_ins, tag](c10d::Backend& transport) mutable {
    return transport.recvAnysource(stand_ins, tag);
  });
}

WorkPtr HostBackend::barrier(const c10d::BarrierOptions& options) {
  constexpr auto kWhat = "barrier";
  auto host = tensors_for(kWhat, Use::kMove);
  host->set_device(device_of(options));
  return run(OpType::BARRIER, kWhat, host, [options](c10d::Backend& transport) { return transport.barrier(options); });
}

void HostBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  synchronize_device();
  transport_->monitoredBarrier(options, wait_all_ranks);
}

} // namespace torch_backend
