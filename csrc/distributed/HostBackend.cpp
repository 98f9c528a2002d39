#include "csrc/distributed/HostBackend.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/cat.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "csrc/core/Runtime.h"
#include "csrc/distributed/Failure.h"
#include "csrc/distributed/HostReduction.h"
#include "csrc/distributed/StepTimer.h"
#include "csrc/distributed/WorkGroup.h"

namespace torch_backend {
namespace {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Use = HostTensors::Use;

/// What a thread issues while it coalesces, per group.
struct Coalescing {
  const c10d::Backend* group = nullptr;
  std::vector<WorkPtr> works;
};
thread_local Coalescing coalescing;

HostBackend::RunUnlocked run_unlocked = nullptr;

const at::Tensor& first(const char* what, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), what, " needs a tensor.");
  return tensors.front();
}

const at::Tensor& only(const char* what, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, " takes one tensor per process, got ", tensors.size(), ".");
  return tensors.front();
}

void check_same_dtype(const char* what, const std::vector<at::Tensor>& tensors, const at::Tensor& model) {
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.scalar_type() == model.scalar_type(), what, " takes tensors of one dtype, got ",
                      model.scalar_type(), " and ", tensor.scalar_type(), ".");
  }
}

void check_numel(const char* what, const at::Tensor& whole, const at::Tensor& part, int parts) {
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * parts, what, ": of ", parts, " ranks with ", part.numel(),
                    " elements each, the whole has ", part.numel() * parts, ", but the tensor given for it has ",
                    whole.numel(), ".");
}

/// The stand-ins of one reduction's inputs, which PREMUL_SUM must not change in place, and of its outputs.
std::vector<at::Tensor> read_for(const HostReduction& reduction, HostTensors& tensors,
                                 const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> stand_ins;
  for (const auto& input : inputs) {
    stand_ins.push_back(reduction.multiplies() ? tensors.read_private(input) : tensors.read(input));
  }
  return stand_ins;
}

void add_steps(const HostReduction& reduction, HostTensors& tensors, const std::vector<at::Tensor>& inputs,
               const std::vector<at::Tensor>& outputs) {
  if (reduction.multiplies()) {
    tensors.before([reduction, inputs] { reduction.multiply(inputs); });
  }
  if (reduction.divides()) {
    tensors.after([reduction, outputs] { reduction.divide(outputs); });
  }
}

std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

} // namespace

HostBackend::HostBackend(std::string name, c10::intrusive_ptr<c10d::Backend> transport,
                         std::chrono::milliseconds timeout, MakeTransport make_transport)
    : Backend(transport->getRank(), transport->getSize()),
      name_(std::move(name)),
      transport_(std::move(transport)),
      options_(c10::make_intrusive<Options>(name_, timeout)),
      make_transport_(std::move(make_transport)) {
  init();
  register_step_timer();
}

HostBackend::~HostBackend() {
  const auto close = [](void* self) { static_cast<HostBackend*>(self)->close(); };
  if (run_unlocked) {
    run_unlocked(close, this);
  } else {
    close(this);
  }
}

void HostBackend::set_run_unlocked(RunUnlocked run) {
  run_unlocked = run;
}

void HostBackend::close() {
  issuing_.end(); // its tasks use the transport
  transport_.reset();
}

// ---- how a collective runs ----

std::shared_ptr<HostTensors> HostBackend::tensors_for(const char* what, Use use) const {
  return std::make_shared<HostTensors>(what, use);
}

void HostBackend::remember(const c10::intrusive_ptr<HostWork>& work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!aborted_, work->what(), ": the process group '", name_, "' was aborted and does no more work. ",
              "Destroy it and make a new one.");
  running_.erase(std::remove_if(running_.begin(), running_.end(), [](const auto& weak) { return weak.expired(); }),
                 running_.end());
  running_.emplace_back(work);
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
  if (coalescing.group == this) {
    coalescing.works.push_back(work);
  }
  return work;
}

WorkPtr HostBackend::run(OpType type, const char* what, std::shared_ptr<HostTensors> tensors, Issue issue) {
  auto work = c10::make_intrusive<HostCollectiveWork>(rank_, size_, type, what, tensors);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work->set_sequence_number(++num_collectives_);
  }
  return start(work, tensors, std::move(issue));
}

WorkPtr HostBackend::run_peer(OpType type, const char* what, std::shared_ptr<HostTensors> tensors, Issue issue) {
  return start(c10::make_intrusive<HostPeerWork>(rank_, size_, type, what, tensors), tensors, std::move(issue));
}

void HostBackend::startCoalescing() {
  TORCH_CHECK(!coalescing.group, "Coalescing was started already in this thread.");
  coalescing.group = this;
}

WorkPtr HostBackend::endCoalescing() {
  TORCH_CHECK(coalescing.group == this, "Coalescing was not started for this group in this thread.");
  coalescing.group = nullptr;
  return c10::make_intrusive<WorkGroup>(rank_, std::exchange(coalescing.works, {}));
}

// ---- the group ----

void HostBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  transport_->setTimeout(timeout);
}

c10d::ErrorType HostBackend::getError() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& weak : running_) {
    const auto work = weak.lock();
    if (work && work->isCompleted() && !work->isSuccess()) {
      failed_ = true;
    }
  }
  return failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void HostBackend::abort() {
  std::vector<c10::weak_intrusive_ptr<HostWork>> running;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    running.swap(running_);
  }
  for (const auto& weak : running) {
    if (const auto work = weak.lock()) {
      work->abort();
    }
  }
}

c10::intrusive_ptr<c10d::Backend> HostBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  if (place == ranks.end()) {
    return nullptr;
  }
  const auto timeout = options ? options->timeout : options_->timeout;
  // The store is that of all parts.
  const auto own = c10::make_intrusive<c10d::PrefixStore>(
      c10::str(options ? options->group_name : "", "/", c10::Join(",", ranks), "/"), store);
  auto transport =
      make_transport_(own, static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size()), timeout);
  auto part = c10::make_intrusive<HostBackend>(name_, std::move(transport), timeout, make_transport_);
  if (options) {
    part->options_->group_name = options->group_name;
  }
  for (const int rank : ranks) {
    const auto index = static_cast<std::size_t>(rank);
    const auto& global = options_->global_ranks_in_group;
    part->options_->global_ranks_in_group.push_back(index < global.size() ? global[index]
                                                                          : static_cast<uint64_t>(rank));
  }
  return part;
}

uint64_t HostBackend::getSequenceNumberForGroup() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_collectives_;
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
  const HostReduction reduction(kWhat, options.reduceOp, only(kWhat, tensors).scalar_type(), size_);
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
  const HostReduction reduction(kWhat, options.reduceOp, model.scalar_type(), size_);
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
  const HostReduction reduction(kWhat, options.reduceOp, only(kWhat, tensors).scalar_type(), size_);
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

WorkPtr HostBackend::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) {
  std::vector<WorkPtr> works;
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "all_gather_into_tensor_coalesced got ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs.");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    works.push_back(_allgather_base(outputs[i], inputs[i], options));
  }
  return c10::make_intrusive<WorkGroup>(rank_, std::move(works));
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
  const HostReduction reduction(what, options.reduceOp, output.scalar_type(), size_);
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
  TORCH_CHECK_VALUE(inputs.size() == 1 && inputs.front().size() == static_cast<std::size_t>(size_), kWhat,
                    " takes one list with a tensor for each of ", size_, " ranks.");
  check_same_dtype(kWhat, inputs.front(), output);
  const auto& mine = inputs.front()[static_cast<std::size_t>(rank_)];
  TORCH_CHECK_VALUE(mine.numel() == output.numel(), kWhat, ": the input for rank ", rank_, " has ", mine.numel(),
                    " elements, its output ", output.numel(), ".");
  return scatter_and_combine(OpType::REDUCE_SCATTER, kWhat, output, inputs.front(), options);
}

WorkPtr HostBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::ReduceScatterOptions& options) {
  constexpr auto kWhat = "reduce_scatter_tensor";
  check_same_dtype(kWhat, {input}, output);
  check_numel(kWhat, input, output, size_);
  return scatter_and_combine(OpType::_REDUCE_SCATTER_BASE, kWhat, output, {input}, options);
}

WorkPtr HostBackend::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  std::vector<WorkPtr> works;
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "reduce_scatter_tensor_coalesced got ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs.");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    works.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  }
  return c10::make_intrusive<WorkGroup>(rank_, std::move(works));
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
  TORCH_CHECK_VALUE(inputs.size() == static_cast<std::size_t>(size_) && outputs.size() == inputs.size(), kWhat,
                    " takes a tensor from and for each of ", size_, " ranks, got ", inputs.size(), " inputs and ",
                    outputs.size(), " outputs.");
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
  const auto index = options.device && options.device->has_index() ? options.device->index()
                     : options.device_ids.empty() ? current_device()
                                                  : static_cast<c10::DeviceIndex>(options.device_ids.front());
  host->set_device(c10::Device(c10::DeviceType::PrivateUse1, resolve_device(index)));
  return run(OpType::BARRIER, kWhat, host, [options](c10d::Backend& transport) { return transport.barrier(options); });
}

void HostBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  synchronize_device();
  transport_->monitoredBarrier(options, wait_all_ranks);
}

} // namespace torch_backend
