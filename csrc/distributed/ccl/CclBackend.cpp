#include "csrc/distributed/ccl/CclBackend.h"

#include <numeric>
#include <optional>
#include <utility>

#include <c10/util/StringUtil.h>

#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/graph/Capture.h"
#include "csrc/distributed/Arguments.h"
#include "csrc/distributed/Reduction.h"
#include "csrc/distributed/ccl/Staging.h"

namespace torch_backend::ccl {
namespace {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

/// Where values are reduced in place: `tensor` itself where its memory will do. Inputs that a reduction multiplies are
/// changed, and must be nobody else's.
at::Tensor private_copy(const at::Tensor& stand_in, const at::Tensor& original) {
  return stand_in.is_alias_of(original) ? stand_in.clone() : stand_in;
}

/// How many elements of a tensor each rank has, by rows; all as many if nothing is said.
std::vector<int64_t> counts_of(const char* what, const at::Tensor& tensor, const std::vector<int64_t>& rows, int size) {
  if (rows.empty()) {
    TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % size == 0, what, ": a tensor with sizes ", tensor.sizes(),
                      " cannot be divided evenly among ", size, " ranks.");
    return std::vector<int64_t>(static_cast<std::size_t>(size), tensor.numel() / size);
  }
  TORCH_CHECK_VALUE(rows.size() == static_cast<std::size_t>(size), what, " takes a number of rows for each of ", size,
                    " ranks, got ", rows.size(), ".");
  const auto sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  TORCH_CHECK_VALUE(tensor.dim() > 0 && sum == tensor.size(0), what, ": the ranks have ", sum,
                    " rows together, and the tensor has sizes ", tensor.sizes(), ".");
  const int64_t row = tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
  std::vector<int64_t> counts;
  for (const auto number : rows) {
    TORCH_CHECK_VALUE(number >= 0, what, " got ", number, " rows for a rank.");
    counts.push_back(number * row);
  }
  return counts;
}

void check_rank(const char* what, int rank, int size) {
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, what, ": there is no rank ", rank, " in a group of ", size, ".");
}

} // namespace

CclBackend::CclBackend(std::string name, c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                       std::chrono::milliseconds timeout)
    : DeviceBackend(std::move(name), rank, size, timeout),
      group_(std::make_shared<Group>(std::move(store), rank, size)) {}

CclBackend::~CclBackend() {
  CclBackend::shutdown();
}

c10::intrusive_ptr<DeviceBackend> CclBackend::make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                        int size, std::chrono::milliseconds timeout) {
  return c10::make_intrusive<CclBackend>(name_, store, rank, size, timeout);
}

// ---- the group ----

void CclBackend::eagerConnectSingleDevice(at::Device device) {
  group_->connect(resolve_device(device.index()), timeout());
}

c10d::ErrorType CclBackend::getError() {
  return group_->has_failed() ? c10d::ErrorType::COMM_ERROR : DeviceBackend::getError();
}

void CclBackend::abort() {
  const WithoutInterpreterLock unlocked;
  refuse_more();
  group_->abort(); // before the rest: it tells the devices of work that had not ended
  DeviceBackend::abort();
}

void CclBackend::shutdown() {
  const WithoutInterpreterLock unlocked;
  group_->close();
}

// ---- how a collective runs ----

std::chrono::milliseconds CclBackend::limit(std::chrono::milliseconds asked) const {
  return asked == c10d::kUnsetTimeout ? timeout() : asked;
}

c10::Device CclBackend::checked_device(const Call& call) const {
  std::optional<c10::Device> device;
  for (const auto* tensors : {&call.reads, &call.writes}) {
    for (const auto& tensor : *tensors) {
      check_tensor(call.what, tensor, device);
    }
  }
  TORCH_CHECK_VALUE(device, call.what, " needs a tensor.");
  return *device;
}

c10::intrusive_ptr<CclWork> CclBackend::make_work(Call& call, c10::Device device) {
  device_api().check_usable(device.index(), call.what);
  graph::refuse_in_capture(current_stream(device.index()), call.what);
  auto all = std::move(call.reads);
  all.insert(all.end(), call.writes.begin(), call.writes.end());
  auto work = c10::make_intrusive<CclWork>(rank_, size_, call.type, call.what, device, std::move(all),
                                           std::move(call.writes), call.timeout);
  return work;
}

WorkPtr CclBackend::run(Call call, Body body) {
  const auto device = checked_device(call);
  auto work = make_work(call, device);
  remember(work);
  work->set_sequence_number(next_sequence_number());
  group_->start(work, device.index(), timeout(), std::move(body));
  return started(work);
}

WorkPtr CclBackend::run_peer(Call call, int peer, bool sends, Body body) {
  const auto device = checked_device(call);
  check_rank(call.what, peer, size_);
  TORCH_CHECK_VALUE(peer != rank_, call.what, ": rank ", peer, " is this rank; a rank does not send to itself.");
  auto work = make_work(call, device);
  remember(work);
  if (!sends) {
    work->set_source(peer);
  }
  group_->start_peer(work, device.index(), timeout(), peer, sends, std::move(body));
  return started(work);
}

// ---- collectives ----

WorkPtr CclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  constexpr auto kWhat = "broadcast";
  const auto tensor = only(kWhat, tensors);
  const int root = static_cast<int>(options.rootRank);
  check_rank(kWhat, root, size_);
  const bool is_root = root == rank_;
  return run({OpType::BROADCAST, kWhat, {}, {tensor}, limit(options.timeout)},
             [tensor, root, is_root](Collectives& collectives) {
               Staging staging;
               collectives.broadcast(is_root ? staging.read(tensor) : staging.write(tensor), root);
               staging.deliver();
             });
}

WorkPtr CclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr auto kWhat = "all_reduce";
  only(kWhat, tensors);
  c10d::AllreduceCoalescedOptions one;
  one.reduceOp = options.reduceOp;
  one.timeout = options.timeout;
  return reduce_all(OpType::ALLREDUCE, kWhat, tensors, one);
}

WorkPtr CclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  constexpr auto kWhat = "all_reduce_coalesced";
  check_same_dtype(kWhat, tensors, first(kWhat, tensors));
  return reduce_all(OpType::ALLREDUCE_COALESCED, kWhat, tensors, options);
}

WorkPtr CclBackend::reduce_all(OpType type, const char* what, const Tensors& tensors,
                               const c10d::AllreduceCoalescedOptions& options) {
  const Reduction reduction(what, options.reduceOp, tensors.front().scalar_type(), size_);
  return run({type, what, {}, tensors, limit(options.timeout)}, [tensors, reduction](Collectives& collectives) {
    for (const auto& tensor : tensors) {
      Staging staging;
      const auto values = staging.update(tensor);
      collectives.all_reduce(as_reduced(values), reduction);
      staging.deliver();
    }
  });
}

WorkPtr CclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr auto kWhat = "reduce";
  const auto tensor = only(kWhat, tensors);
  const Reduction reduction(kWhat, options.reduceOp, tensor.scalar_type(), size_);
  const int root = static_cast<int>(options.rootRank);
  check_rank(kWhat, root, size_);
  const bool is_root = root == rank_;
  return run({OpType::REDUCE, kWhat, {}, {tensor}, limit(options.timeout)},
             [tensor, reduction, root, is_root](Collectives& collectives) {
               Staging staging;
               auto values = is_root ? staging.update(tensor) : staging.read(tensor);
               if (!is_root && reduction.multiplies()) {
                 values = private_copy(values, tensor);
               }
               collectives.reduce(as_reduced(values), reduction, root);
               staging.deliver();
             });
}

WorkPtr CclBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather";
  const auto input = only(kWhat, inputs);
  const auto& list = only_list(kWhat, outputs);
  check_one_per_rank(kWhat, list, size_);
  check_same_dtype(kWhat, list, input);
  for (const auto& output : list) {
    check_numel(kWhat, output, input, 1);
  }
  return run({OpType::ALLGATHER, kWhat, {input}, list, limit(options.timeout)},
             [input, list](Collectives& collectives) {
               Staging staging;
               collectives.all_gather(staging.read(input), staging.write_joined(list));
               staging.deliver();
             });
}

WorkPtr CclBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather_into_tensor";
  check_same_dtype(kWhat, {output}, input);
  check_numel(kWhat, output, input, size_);
  return run({OpType::_ALLGATHER_BASE, kWhat, {input}, {output}, limit(options.timeout)},
             [input, output](Collectives& collectives) {
               Staging staging;
               collectives.all_gather(staging.read(input), staging.write(output));
               staging.deliver();
             });
}

WorkPtr CclBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
  constexpr auto kWhat = "all_gather_coalesced";
  // outputs[rank][i] is that rank's inputs[i].
  TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(size_), kWhat, " takes a list for each of ", size_,
                    " ranks, got ", outputs.size(), ".");
  std::vector<Tensors> by_input(inputs.size());
  for (const auto& list : outputs) {
    check_as_many(kWhat, list, inputs);
    for (std::size_t i = 0; i < list.size(); ++i) {
      check_same_dtype(kWhat, {list[i]}, inputs[i]);
      check_numel(kWhat, list[i], inputs[i], 1);
      by_input[i].push_back(list[i]);
    }
  }
  return run({OpType::ALLGATHER_COALESCED, kWhat, inputs, flatten(outputs), limit(options.timeout)},
             [inputs, by_input](Collectives& collectives) {
               for (std::size_t i = 0; i < inputs.size(); ++i) {
                 Staging staging;
                 collectives.all_gather(staging.read(inputs[i]), staging.write_joined(by_input[i]));
                 staging.deliver();
               }
             });
}

WorkPtr CclBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  constexpr auto kWhat = "gather";
  const auto input = only(kWhat, inputs);
  const int root = static_cast<int>(options.rootRank);
  check_rank(kWhat, root, size_);
  const auto list = root == rank_ ? only_list(kWhat, outputs) : Tensors{};
  if (root == rank_) {
    check_one_per_rank(kWhat, list, size_);
    check_same_dtype(kWhat, list, input);
    for (const auto& output : list) {
      check_numel(kWhat, output, input, 1);
    }
  }
  return run({OpType::GATHER, kWhat, {input}, list, limit(options.timeout)},
             [input, list, root](Collectives& collectives) {
               Staging staging;
               collectives.gather(staging.read(input), staging.write(list), root);
               staging.deliver();
             });
}

WorkPtr CclBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  constexpr auto kWhat = "scatter";
  const auto output = only(kWhat, outputs);
  const int root = static_cast<int>(options.rootRank);
  check_rank(kWhat, root, size_);
  const auto list = root == rank_ ? only_list(kWhat, inputs) : Tensors{};
  if (root == rank_) {
    check_one_per_rank(kWhat, list, size_);
    check_same_dtype(kWhat, list, output);
    for (const auto& input : list) {
      check_numel(kWhat, input, output, 1);
    }
  }
  return run({OpType::SCATTER, kWhat, list, {output}, limit(options.timeout)},
             [list, output, root](Collectives& collectives) {
               Staging staging;
               collectives.scatter(staging.read(list), staging.write(output), root);
               staging.deliver();
             });
}

WorkPtr CclBackend::scatter_reduced(OpType type, const char* what, const at::Tensor& output, const Tensors& inputs,
                                    const c10d::ReduceScatterOptions& options) {
  const Reduction reduction(what, options.reduceOp, output.scalar_type(), size_);
  return run({type, what, inputs, {output}, limit(options.timeout)},
             [output, inputs, reduction](Collectives& collectives) {
               Staging staging;
               auto values = staging.read_joined(inputs);
               if (reduction.multiplies()) {
                 values = private_copy(values, inputs.front());
               }
               collectives.reduce_scatter(as_reduced(values), as_reduced(staging.write(output)), reduction);
               staging.deliver();
             });
}

WorkPtr CclBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& options) {
  constexpr auto kWhat = "reduce_scatter";
  const auto& output = only(kWhat, outputs);
  check_reduce_scatter(kWhat, output, inputs, rank_, size_);
  for (const auto& input : inputs.front()) {
    check_numel(kWhat, input, output, 1);
  }
  return scatter_reduced(OpType::REDUCE_SCATTER, kWhat, output, inputs.front(), options);
}

WorkPtr CclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::ReduceScatterOptions& options) {
  constexpr auto kWhat = "reduce_scatter_tensor";
  check_same_dtype(kWhat, {input}, output);
  check_numel(kWhat, input, output, size_);
  return scatter_reduced(OpType::_REDUCE_SCATTER_BASE, kWhat, output, {input}, options);
}

WorkPtr CclBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                  std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  constexpr auto kWhat = "all_to_all_single";
  check_same_dtype(kWhat, {output}, input);
  const auto sent = counts_of(kWhat, input, input_splits, size_);
  const auto received = counts_of(kWhat, output, output_splits, size_);
  return run({OpType::ALLTOALL_BASE, kWhat, {input}, {output}, limit(options.timeout)},
             [input, output, sent, received](Collectives& collectives) {
               Staging staging;
               collectives.all_to_all(staging.read(input), sent, staging.write(output), received);
               staging.deliver();
             });
}

WorkPtr CclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  constexpr auto kWhat = "all_to_all";
  check_one_per_rank(kWhat, inputs, size_);
  check_one_per_rank(kWhat, outputs, size_);
  check_same_dtype(kWhat, inputs, inputs.front());
  check_same_dtype(kWhat, outputs, inputs.front());
  // From where the tensors lie: a slot would want them joined.
  return run({OpType::ALLTOALL, kWhat, inputs, outputs, limit(options.timeout)},
             [inputs, outputs](Collectives& collectives) {
               Staging staging;
               collectives.exchange(staging.read(inputs), staging.write(outputs));
               staging.deliver();
             });
}

WorkPtr CclBackend::send(Tensors& tensors, int rank, int /*tag*/) {
  constexpr auto kWhat = "send";
  const auto tensor = only(kWhat, tensors);
  return run_peer({OpType::SEND, kWhat, {tensor}, {}, timeout()}, rank, /*sends=*/true,
                  [tensor](Collectives& collectives) {
                    Staging staging;
                    collectives.send(staging.read(tensor), 1);
                  });
}

WorkPtr CclBackend::recv(Tensors& tensors, int rank, int /*tag*/) {
  constexpr auto kWhat = "recv";
  const auto tensor = only(kWhat, tensors);
  return run_peer({OpType::RECV, kWhat, {}, {tensor}, timeout()}, rank, /*sends=*/false,
                  [tensor](Collectives& collectives) {
                    Staging staging;
                    collectives.recv(staging.write(tensor), 0);
                    staging.deliver();
                  });
}

WorkPtr CclBackend::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "recv from any rank: the collective library of ", device_api().name(),
                              " receives from a rank that is named, as NCCL does. Name the source.");
}

WorkPtr CclBackend::barrier(const c10d::BarrierOptions& options) {
  constexpr auto kWhat = "barrier";
  const auto device = device_of(options);
  Call call{OpType::BARRIER, kWhat, {}, {}, limit(options.timeout)};
  auto work = make_work(call, device);
  remember(work);
  work->set_sequence_number(next_sequence_number());
  group_->start(work, device.index(), timeout(),
                [device](Collectives& collectives) { collectives.barrier(at::TensorOptions(device)); });
  return started(work);
}

void CclBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  const WithoutInterpreterLock unlocked;
  synchronize_device(device_of(options).index());
  group_->meet_on_store(limit(options.timeout));
}

} // namespace torch_backend::ccl
